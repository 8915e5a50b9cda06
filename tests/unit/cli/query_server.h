// A server of the query service alone, over a store in a temporary directory.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "server/serve/listener.h"
#include "server/serve/verdict_service.h"
#include "tests/unit/store/sample.h"

namespace plumbline {

class QueryServer {
 public:
  QueryServer() {
    std::string pattern = testing::TempDir() + "plumbline-query-XXXXXX";
    dir_ = mkdtemp(pattern.data());
    auto store = open_local_store(dir_);
    EXPECT_TRUE(store.ok()) << store.status();
    store_ = std::move(*store);
    access_ = *Access::open({});
    service_ = std::make_unique<VerdictService>(VerdictService::Parts{store_.get(), access_.get()});
    grpc::ServerBuilder builder;
    builder.RegisterService(service_->service());
    server_ = builder.BuildAndStart();
    EXPECT_NE(server_, nullptr);
    Listener::Options options;
    options.address.text = address();
    options.address.path = dir_ + "/sock";
    auto socket = Listener::listen(options);
    EXPECT_TRUE(socket.ok()) << socket.status();
    socket_ = *std::move(socket);
    const auto give = [server = server_.get()](int connection) { grpc::AddInsecureChannelFromFd(server, connection); };
    socket_->serve(give, &connections_);
  }
  ~QueryServer() {
    service_->drain();
    shutdown();
    service_.reset();
    store_.reset();
    std::filesystem::remove_all(dir_);
  }

  std::string address() const { return "unix:" + dir_ + "/sock"; }
  VerdictStore& store() { return *store_; }
  VerdictService& service() { return *service_; }
  std::unique_ptr<v1::VerdictService::Stub> stub() {
    return v1::VerdictService::NewStub(grpc::CreateChannel(address(), grpc::InsecureChannelCredentials()));
  }
  void shutdown() {
    socket_.reset();
    if (server_) server_->Shutdown();
    server_.reset();
  }

 private:
  std::string dir_;
  std::unique_ptr<SqlStore> store_;
  std::unique_ptr<Access> access_;
  std::unique_ptr<VerdictService> service_;
  std::unique_ptr<grpc::Server> server_;
  Connections connections_{64, 64};
  std::unique_ptr<Listener> socket_;
};

}  // namespace plumbline
