// Where the history that daemons share ends for a question, and the daemon's own begins: what is up to `shared_through`
// there and after `own_after` here is everything, and no record is in both.
//
// That holds since a shipment writes its verdicts and how far it went (nodes.shipped) in one transaction, in the order
// of our own sequences; and since writers of the shared history take turns, so that nothing is ever added to what is up
// to a sequence. A list therefore keeps the cut of its first page: what is shipped meanwhile is still read here.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "server/store/sql.h"

namespace plumbline {

struct Cut {
  std::string history;              // The shared one's identity.
  std::int64_t shared_through = 0;  // In its sequences.
  std::int64_t own_after = 0;       // In ours.
};

// As it is now, of the daemon `node`; `shared`: a connection to the shared history. One snapshot.
absl::StatusOr<Cut> read_cut(const SqlConnection& shared, const std::string& node);

// As a text without spaces, and back. INVALID_ARGUMENT: it is none.
std::string write_cut(const Cut& cut);
absl::StatusOr<Cut> parse_cut(const std::string& text);

}  // namespace plumbline
