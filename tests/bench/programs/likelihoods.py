"""What is fitted: survival, counts, tails, evidence, hidden states, transducers, rankings of overlap, energies."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Beta, Dirichlet, Independent, NegativeBinomial, Normal, StudentT, kl_divergence

from .generative import mlp
from .language import WORDS, text
from .training import Cast, Training, program, trained
from .vision import images


@program(wrong=r"logcumsumexp|cumsum|sub|flip|exp|log")
def survival(cast: Cast, wrong: bool) -> Training:
    """Cox's partial likelihood; the bug counts those at risk from the wrong end."""
    model = mlp(6, 16, 1)

    def loss() -> torch.Tensor:
        risk, time = model(torch.randn(16, 6)).float().squeeze(1), torch.rand(16)
        died = (torch.rand(16) < 0.7).float()
        order = time.argsort(descending=not wrong)
        risk, died = risk[order], died[order]
        return -((risk - risk.logcumsumexp(0)) * died).sum() / died.sum().clamp(min=1)

    return trained(model, torch.optim.Adam(model.parameters(), 1e-3), loss, cast)


@program()
def counts_over_time(cast: Cast) -> Training:
    """DeepAR's: a recurrent network that scales each series by its mean."""
    cell, out = nn.GRU(2, 12, batch_first=True), nn.Linear(12, 2)
    model = nn.ModuleList([cell, out])

    def loss() -> torch.Tensor:
        series = torch.poisson(torch.full((6, 9), 4.0))
        scale = 1 + series[:, :-1].mean(1, keepdim=True)
        day = (torch.arange(8) % 7 / 7).expand(6, 8)
        mean, shape = F.softplus(out(cell(torch.stack([series[:, :-1] / scale, day], 2))[0]).float()).unbind(-1)
        mean, shape = mean * scale, shape / scale.sqrt() + 1e-3
        return -NegativeBinomial(1 / shape, logits=(mean * shape).log()).log_prob(series[:, 1:]).mean()

    return trained(model, torch.optim.Adam(model.parameters(), 1e-3), loss, cast)


@program(bf16=False)
def heavy_tails(cast: Cast) -> Training:
    model = mlp(5, 16, 3)

    def loss() -> torch.Tensor:
        freedom, place, scale = model(torch.randn(12, 5)).unbind(1)
        tail = StudentT(2 + F.softplus(freedom), place, F.softplus(scale) + 1e-3)
        return -tail.log_prob(torch.randn(12) * 2).mean()

    return trained(model, torch.optim.Adam(model.parameters(), 1e-3), loss, cast)


@program(wrong=r"digamma|lgamma|add|sub|mul")
def evidence(cast: Cast, wrong: bool) -> Training:
    """A classifier that says how much it knows; the bug forgets that evidence begins at one."""
    model = mlp(6, 16, 4)

    def loss() -> torch.Tensor:
        strength = F.softplus(model(torch.randn(10, 6)).float()) + (0.5 if wrong else 1.0)
        truth = F.one_hot(torch.randint(0, 4, (10,)), 4)
        fit = (truth * (strength.sum(1, keepdim=True).digamma() - strength.digamma())).sum(1)
        misled = truth + (1 - truth) * strength
        return (fit + 0.1 * kl_divergence(Dirichlet(misled), Dirichlet(torch.ones(4)))).mean()

    return trained(model, torch.optim.Adam(model.parameters(), 1e-3), loss, cast)


@program(bf16=False)
def shares_between_bounds(cast: Cast) -> Training:
    """A beta policy, whose samples carry their derivatives."""
    model = mlp(4, 16, 4)

    def loss() -> torch.Tensor:
        a, b = (F.softplus(model(torch.randn(8, 4))) + 1).chunk(2, 1)
        policy = Beta(a, b)
        action = policy.rsample()
        return (action - 0.3).square().mean() - 1e-2 * policy.entropy().mean()

    return trained(model, torch.optim.Adam(model.parameters(), 1e-3), loss, cast)


@program(wrong=r"logsumexp|add")
def hidden_states(cast: Cast, wrong: bool) -> Training:
    """A hidden Markov model by the forward algorithm; the bug reads the transitions transposed."""
    start, moves, shows = (nn.Parameter(torch.randn(*shape)) for shape in ((4,), (4, 4), (4, WORDS)))
    model = nn.ParameterList([start, moves, shows])

    def loss() -> torch.Tensor:
        seen, go, say = text(3, 7), moves.log_softmax(1), shows.log_softmax(1)
        reach = start.log_softmax(0) + say[:, seen[:, 0]].T
        for t in range(1, 7):
            step = reach[:, None, :] + go if wrong else reach[:, :, None] + go
            reach = step.logsumexp(2 if wrong else 1) + say[:, seen[:, t]].T
        return -reach.logsumexp(1).mean()

    return trained(model, torch.optim.Adam(model.parameters(), 1e-2), loss, cast)


@program()
def transducer(cast: Cast) -> Training:
    """Speech to words by all alignments, along the diagonals of a grid."""
    hears, says, joint = nn.GRU(5, 8, batch_first=True), nn.Embedding(7, 8), nn.Linear(8, 7)
    model = nn.ModuleList([hears, says, joint])

    def loss() -> torch.Tensor:
        sound, words = torch.randn(2, 6, 5), torch.randint(1, 7, (2, 3))
        heard = hears(sound)[0]
        said = says(F.pad(words, (1, 0)))
        scores = joint((heard[:, :, None] + said[:, None]).tanh()).float().log_softmax(-1)
        blank, emit = scores[..., 0], scores[:, :, :-1].gather(3, words[:, None, :, None].expand(-1, 6, -1, 1))[..., 0]
        reach: dict[tuple[int, int], torch.Tensor] = {(0, 0): torch.zeros(2)}
        for t in range(6):
            for u in range(4):
                ways = [reach[t - 1, u] + blank[:, t - 1, u]] if t else []
                ways += [reach[t, u - 1] + emit[:, t, u - 1]] if u else []
                if ways:
                    reach[t, u] = torch.stack(ways).logsumexp(0)
        return -(reach[5, 3] + blank[:, 5, 3]).mean()

    return trained(model, torch.optim.Adam(model.parameters(), 1e-3), loss, cast)


@program(wrong=r"cumsum|sort|dot|sub|index")
def overlap_by_rank(cast: Cast, wrong: bool) -> Training:
    """Lovasz' hinge beside dice and focal terms; the bug forgets to order the truth as the errors are."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))

    def loss() -> torch.Tensor:
        x = model(images(2)).float().flatten()
        truth = (torch.rand(x.shape) < 0.3).float()
        errors, order = (1 - x * (2 * truth - 1)).sort(descending=True)
        ranked = truth if wrong else truth[order]
        whole = ranked.sum()
        jaccard = 1 - (whole - ranked.cumsum(0)) / (whole + (1 - ranked).cumsum(0))
        weight = torch.cat([jaccard[:1], jaccard.diff()])
        dice = 1 - (2 * (x.sigmoid() * truth).sum() + 1) / (x.sigmoid().sum() + truth.sum() + 1)
        entropy = F.binary_cross_entropy_with_logits(x, truth, reduction="none")
        focal = ((1 - (-entropy).exp()).square() * entropy).mean()
        return errors.relu() @ weight + dice + focal

    return trained(model, torch.optim.SGD(model.parameters(), 0.05, momentum=0.9), loss, cast)


@program(bf16=False)
def energies(cast: Cast) -> Training:
    """An energy, trained on samples that Langevin's dynamics draws from itself."""
    model = mlp(2, 16, 1)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    kept = torch.randn(12, 2)

    def step() -> None:
        x = kept.clone()
        for _ in range(4):
            x.requires_grad_()
            slope = torch.autograd.grad(model(x).sum(), x)[0]
            x = (x - 0.1 * slope + 0.05 * torch.randn(12, 2)).detach()
        kept.copy_(x)
        real, dreamt = model(torch.randn(12, 2) * 0.5), model(x)
        loss = (real - dreamt).mean() + 0.1 * (real.square() + dreamt.square()).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.05)
        optimizer.step()

    return Training([model], [optimizer], step, {"kept": kept})


@program(bf16=False, wrong=r"mul|sum|add|div|sin|cos")
def scores(cast: Cast, wrong: bool) -> Training:
    """Sliced score matching; the bug forgets the half of the square."""
    model = mlp(3, 16, 3)

    def loss() -> torch.Tensor:
        x, along = torch.randn(10, 3).requires_grad_(), torch.randn(10, 3)
        score = model(x)
        turned = torch.autograd.grad((score * along).sum(), x, create_graph=True)[0]
        half = 1.0 if wrong else 0.5
        return ((turned * along).sum(1) + half * (score * along).sum(1).square()).mean()

    return trained(model, torch.optim.Adam(model.parameters(), 1e-3), loss, cast)


@program()
def parts_of_a_divergence(cast: Cast) -> Training:
    """A variational autoencoder whose divergence is taken apart, by a matrix of all codes against all."""
    encoder, decoder = mlp(8, 16, 6), mlp(3, 16, 8)
    model = nn.ModuleList([encoder, decoder])

    def loss() -> torch.Tensor:
        x = torch.randn(8, 8)
        mean, spread = encoder(x).float().chunk(2, 1)
        chance = Normal(mean, F.softplus(spread) + 1e-2)
        code = chance.rsample()
        own = chance.log_prob(code).sum(1)
        all_ = Normal(mean[None], F.softplus(spread)[None] + 1e-2).log_prob(code[:, None])
        whole = all_.sum(2).logsumexp(1) - math.log(8 * 100)
        alone = (all_.logsumexp(1) - math.log(8 * 100)).sum(1)
        prior = Independent(Normal(torch.zeros(3), torch.ones(3)), 1).log_prob(code)
        apart = (own - whole) + 4 * (whole - alone) + (alone - prior)
        return F.mse_loss(decoder(code).float(), x, reduction="sum") / 8 + apart.mean()

    return trained(model, torch.optim.Adam(model.parameters(), 1e-3), loss, cast)


@program(wrong=r"sort|sub|mean|abs")
def sliced_distances(cast: Cast, wrong: bool) -> Training:
    """Wasserstein's distance by random slices, and maximum mean discrepancy; the bug compares without order."""
    model = mlp(4, 16, 3)

    def loss() -> torch.Tensor:
        made, goal = model(torch.randn(10, 4)).float(), torch.randn(10, 3)
        towards = F.normalize(torch.randn(3, 12), dim=0)
        a, b = made @ towards, goal @ towards
        a = a if wrong else a.sort(0).values
        sliced = (a - b.sort(0).values).square().mean()
        apart = torch.cdist(torch.cat([made, goal]), torch.cat([made, goal])).square()
        kernel = sum(torch.exp(-apart / width) for width in (0.5, 1.0, 2.0))
        sign = torch.cat([torch.ones(10), -torch.ones(10)]) / 10
        return sliced + sign @ kernel @ sign

    return trained(model, torch.optim.Adam(model.parameters(), 1e-3), loss, cast)


@program(wrong=r"add|sub|mul|sum|complex|view_as|neg")
def turned_relations(cast: Cast, wrong: bool) -> Training:
    """RotatE: relations turn complex entities; the bug scores wrong triples as if they were right."""
    entities, relations = nn.Embedding(12, 8), nn.Embedding(4, 4)
    model = nn.ModuleList([entities, relations])

    def turned(head: torch.Tensor, by: torch.Tensor, tail: torch.Tensor) -> torch.Tensor:
        phase = torch.polar(torch.ones(by.shape), by)
        gap = torch.view_as_complex(head.unflatten(-1, (-1, 2))) * phase
        return 2 - torch.view_as_real(gap - torch.view_as_complex(tail.unflatten(-1, (-1, 2)))).norm(dim=-1).sum(-1)

    def loss() -> torch.Tensor:
        head, by, tail = (
            entities(torch.randint(0, 12, (6,))),
            relations(torch.randint(0, 4, (6,))),
            torch.randint(0, 12, (6,)),
        )
        right = turned(head, by, entities(tail))
        others = turned(head[:, None], by[:, None], entities(torch.randint(0, 12, (6, 3))))
        share = others.detach().softmax(1)
        return -F.logsigmoid(right).mean() - (share * F.logsigmoid(others if wrong else -others)).sum(1).mean()

    return trained(model, torch.optim.Adam(model.parameters(), 1e-2), loss, cast)


@program(bf16=False)
def words_by_their_neighbours(cast: Cast) -> Training:
    """Skip-grams with negative samples, sparse gradients, and bags of pieces of words."""
    inside, outside = nn.EmbeddingBag(20, 6, mode="mean", sparse=True), nn.Embedding(WORDS, 6, sparse=True)
    model = nn.ModuleList([inside, outside])
    optimizer = torch.optim.SparseAdam(list(model.parameters()), 1e-2)
    often = torch.arange(1, WORDS + 1).float() ** -0.75

    def loss() -> torch.Tensor:
        word = inside(torch.randint(0, 20, (6, 4)))
        near, far = outside(torch.randint(0, WORDS, (6,))), outside(torch.multinomial(often, 18, True).view(6, 3))
        right = F.logsigmoid((word * near).sum(1))
        return -(right + F.logsigmoid(-(far @ word[..., None])).sum((1, 2))).mean()

    return trained(model, optimizer, loss, cast)
