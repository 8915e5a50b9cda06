#include "server/bound/envelope/answer.h"

namespace plumbline {

Answer answer_of(double deviation, const Envelope& envelope, double lambda, double extra, double scale) {
  const double own = replay_error({&envelope}, lambda);
  const double worst = envelope.error + envelope.rho + extra;
  const double chance = statistical(envelope.noise, lambda) + own + extra;
  Answer answer{true, deviation / scale, (chance < worst ? chance : worst) / scale, worst / scale};
  // Our own replay is charged either whole, or by bias and spread.
  const double own_bias = own < envelope.rho ? replay_error({&envelope}, 0) : own;
  answer.bias = (envelope.noise.bias + own_bias + extra) / scale;
  answer.spread = (std::sqrt(envelope.noise.squares) + (own - own_bias) / lambda) / scale;
  return answer;
}

}  // namespace plumbline
