// Policies, in text, and who may do what by them; after a line "--", a file of tokens.
#include "server/access/policy.h"
#include "tests/fuzz/memory_file.h"

namespace plumbline::fuzz {

PLUMBLINE_FUZZ_TARGET(policy) {
  constexpr std::string_view kBetween = "\n--\n";
  const std::size_t at = input.find(kBetween);
  const MemoryFile file(input.substr(0, at));
  const MemoryFile token_file(at == std::string_view::npos ? std::string_view() : input.substr(at + kBetween.size()));
  const auto tokens = Tokens::read(token_file.path());
  if (!tokens.ok()) require(!tokens.status().message().empty(), "a refusal says what was expected");
  const auto policy = Policy::read(file.path(), tokens.ok() ? *tokens : Tokens());
  if (!policy.ok()) return require(!policy.status().message().empty(), "a refusal says what was expected");
  for (const Caller::Kind kind : {Caller::Kind::kUser, Caller::Kind::kToken, Caller::Kind::kCertificate}) {
    Caller caller;
    caller.kind = kind;
    caller.subject = "ci";
    caller.peer.user = 1000;
    for (const Role role : {Role::kStream, Role::kRead, Role::kAdmin}) {
      if (policy->grants(caller, role, "llama")) require(policy->names(caller), "who is granted something is named");
    }
  }
  Caller nobody;
  require(!policy->names(nobody) && policy->readable(nobody).empty(), "who comes without a name has nothing");
}

}  // namespace plumbline::fuzz
