#include "server/serve/tls.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "absl/strings/str_cat.h"

namespace plumbline {
namespace {

using absl::StrCat;

constexpr unsigned kRefreshSeconds = 60;

struct FreeContext {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};

absl::Status wrong(const char* flag, const std::string& file, const std::string& expected) {
  return absl::InvalidArgumentError(StrCat(flag, ": ", file, ": expected ", expected));
}

}  // namespace

absl::Status check_tls(const TlsFiles& files) {
  if (files.certificate.empty() || files.key.empty()) {
    return absl::InvalidArgumentError("--tls-cert, --tls-key: expected both, found one");
  }
  const std::unique_ptr<SSL_CTX, FreeContext> context(SSL_CTX_new(TLS_server_method()));
  if (SSL_CTX_use_certificate_chain_file(context.get(), files.certificate.c_str()) != 1) {
    return wrong("--tls-cert", files.certificate, "a certificate in PEM, found none");
  }
  if (SSL_CTX_use_PrivateKey_file(context.get(), files.key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return wrong("--tls-key", files.key, "the private key of --tls-cert in PEM, found none or another");
  }
  const X509* const certificate = SSL_CTX_get0_certificate(context.get());
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0) {
    return absl::FailedPreconditionError(StrCat("--tls-cert: ", files.certificate,
                                                ": expected a certificate that is valid, found one that has expired"));
  }
  if (!files.client_ca.empty() && SSL_CTX_load_verify_file(context.get(), files.client_ca.c_str()) != 1) {
    return wrong("--tls-client-ca", files.client_ca, "certificates of authorities in PEM, found none");
  }
  return absl::OkStatus();
}

std::shared_ptr<grpc::ServerCredentials> tls_credentials(const TlsFiles& files) {
  namespace tls = grpc::experimental;
  const bool mutual = !files.client_ca.empty();
  auto provider = std::make_shared<tls::FileWatcherCertificateProvider>(files.key, files.certificate, files.client_ca,
                                                                        kRefreshSeconds);
  tls::TlsServerCredentialsOptions options(std::move(provider));
  options.watch_identity_key_cert_pairs();
  if (mutual) options.watch_root_certs();
  options.set_cert_request_type(mutual ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                       : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  options.set_check_call_host(false);  // A client has no host name to hold its certificate against.
  return tls::TlsServerCredentials(options);
}

}  // namespace plumbline
