// Data and buffers, made out of sight by a formula that nobody saw.
//
// An item is known to four half units of its format (match/correspondence.h), and formulas may round worse: a matrix's
// factors, a cosine of a large angle, a difference of large squares. One that loses half of the digits is still
// ordinary, and of those of fp32 three quarters. What is accused because of less than that is not proven.
#pragma once

#include "server/bound/envelope/slack.h"
#include "server/bound/match/correspondence.h"

namespace plumbline {

// How far such a formula may have put each element of an item elsewhere, in one dimension, halved: Gap doubles what is
// free. `amplified`: or by one that amplifies its roundings. Null: nowhere, since all of it may have been written.
Array half_known(Format format, const Array& content, bool amplified);

// The same of the items that one of the programs alone holds, as Slack::freedoms.
Freedoms half_known(const Graph& graph, const Correspondence& match, bool of_reference);

}  // namespace plumbline
