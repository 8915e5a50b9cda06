// Addresses of NATS servers are read as a whole or refused, and what is refused is not repeated.
#include "client/cpp/nats/address.h"

#include <gtest/gtest.h>

namespace plumbline {
namespace {

TEST(NatsAddress, IsReadWithAndWithoutAPort) {
  const auto read =
      parse_nats_addresses("nats://db.example.org,nats://127.0.0.2:1,nats://[::1]:65535,nats://localhost");
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 4u);
  EXPECT_EQ(read->at(0).url, "nats://db.example.org:4222");
  EXPECT_FALSE(read->at(0).loopback || read->at(0).tls);
  EXPECT_EQ(read->at(1).url, "nats://127.0.0.2:1");
  EXPECT_EQ(read->at(2).url, "nats://[::1]:65535");
  EXPECT_EQ(read->at(2).host, "::1");
  for (const int i : {1, 2, 3}) EXPECT_TRUE(read->at(i).loopback) << i;
  EXPECT_TRUE(parse_nats_addresses("tls://a:5")->at(0).tls);
}

TEST(NatsAddress, IsRefusedWithoutRepeatingIt) {
  std::string many = "nats://a";
  for (int i = 0; i < 16; ++i) many += ",nats://a";
  for (const std::string& text :
       {std::string(), std::string("secret"), std::string("nats://"), std::string("nats://:4222"),
        std::string("nats://secret@a"), std::string("nats://u:secret@a:1"), std::string("nats://a:0"),
        std::string("nats://a:65536"), std::string("nats://a:secret"), std::string("nats://[::1"),
        std::string("nats://[::1]secret"), std::string("nats://a/secret"), std::string("nats://a,"),
        std::string("nats://a,tls://b"), many}) {
    const auto read = parse_nats_addresses(text);
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(read.status().message().find("secret"), std::string::npos) << read.status();
  }
}

}  // namespace
}  // namespace plumbline
