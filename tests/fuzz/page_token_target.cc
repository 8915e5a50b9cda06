// Page tokens. The first byte of an input says what the rest is: 't': a token; otherwise the place of one, which
// anybody could seal, with the order of the list in that byte.
#include "server/store/page_token.h"
#include "server/store/store.h"
#include "tests/fuzz/database.h"
#include "tests/fuzz/target.h"

namespace plumbline::fuzz {

PLUMBLINE_FUZZ_TARGET(page_token) {
  if (input.empty()) return;
  const std::string rest(input.substr(1)), question = "verdicts ";
  if (input[0] == 't') {
    const auto place = read_page_token(question, rest);
    if (place.ok()) require(*read_page_token(question, make_page_token(question, *place)) == *place, "a token is read");
    return;
  }
  const std::string token = make_page_token(question, rest);
  const auto place = read_page_token(question, token);
  require(place.ok() && *place == rest, "a place comes back as it was");
  require(!read_page_token("jobs ", token).ok(), "a token of another question is refused");
  static const Database database;
  const auto kind = static_cast<unsigned char>(input[0]);
  const Order order{static_cast<Order::Key>(kind % 4), kind % 8 >= 4};
  const ListPlace after = read_place(*place);
  const auto listed = database.store().list({}, order, &after, 2, false, {}, {});
  require(listed.ok(), "a list goes on from any place");
}

}  // namespace plumbline::fuzz
