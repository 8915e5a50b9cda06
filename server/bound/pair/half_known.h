// Data and buffers that one program alone holds, made out of sight by a formula that nobody saw.
//
// An item is known to four half units of its format (match/correspondence.h), and formulas may round worse: a matrix's
// factors, a cosine of a large angle. One that loses half of the digits is still ordinary. What is accused because of
// less than that is not proven.
#pragma once

#include "server/bound/envelope/slack.h"
#include "server/bound/match/correspondence.h"

namespace plumbline {

// How far such a formula may have put each element of those items of one program elsewhere, as Slack::freedoms.
Freedoms half_known(const Graph& graph, const Correspondence& match, bool of_reference);

}  // namespace plumbline
