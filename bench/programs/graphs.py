"""Message passing on graphs of changing size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from bench.programs import Compile, program


def some_graphs() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for nodes, edges in ((6, 14), (9, 20), (5, 8)):
        yield torch.randn(nodes, 8), torch.randint(0, nodes, (2, edges))


@program("graph networks")
def graph_convolution(compile: Compile) -> Any:
    """Graph convolution with degrees, three graphs."""
    layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(2)])

    @compile
    def forward(x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        source, target = edges
        degree = torch.zeros(x.shape[0]).index_add_(0, target, torch.ones(edges.shape[1])).clamp(min=1)
        norm = (degree[source] * degree[target]).rsqrt().unsqueeze(-1)
        for layer in layers:
            x = torch.zeros_like(x).index_add(0, target, layer(x)[source] * norm).relu()
        return x

    return [forward(*graph) for graph in some_graphs()]


@program("graph networks")
def graph_attention(compile: Compile) -> Any:
    """Graph attention: softmax over the edges of each node."""
    project, left, right = nn.Linear(8, 8), torch.randn(8), torch.randn(8)

    @compile
    def forward(x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        source, target = edges[0], edges[1]
        h = project(x)
        score = F.leaky_relu((h @ left)[source] + (h @ right)[target], 0.2)
        highest = torch.full((x.shape[0],), -torch.inf).scatter_reduce(0, target, score, "amax")
        weight = (score - highest[target]).exp()
        total = torch.zeros(x.shape[0]).scatter_add(0, target, weight)
        return torch.zeros_like(h).index_add(0, target, h[source] * (weight / total[target]).unsqueeze(-1))

    return [forward(*graph) for graph in some_graphs()]


@program("graph networks")
def neighbour_sampling(compile: Compile) -> Any:
    """GraphSAGE with mean aggregation and gradients."""
    own, others = nn.Linear(8, 8), nn.Linear(8, 8)

    @compile
    def loss(x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        source, target = edges
        total = torch.zeros_like(x).index_add(0, target, x[source])
        count = torch.bincount(target, minlength=x.shape[0]).clamp(min=1)
        return (own(x) + others(total / count.unsqueeze(-1))).relu().square().mean()

    found = []
    for graph in some_graphs():
        value = loss(*graph)
        value.backward()
        found.append(value)
    return found, own.weight.grad, others.weight.grad


@program("graph networks")
def edges_that_count(compile: Compile) -> Any:
    """Edges chosen by a threshold on distance."""
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8))

    @compile
    def forward(points: torch.Tensor) -> torch.Tensor:
        distance = torch.cdist(points, points)
        source, target = torch.where((distance < 1.0) & (distance > 0))
        message = net(points[source] - points[target])
        return torch.zeros(points.shape[0], 8).index_add(0, target, message)

    return [forward(torch.rand(n, 3)) for n in (6, 9, 7)]


@program("graph networks")
def pooled_by_graph(compile: Compile) -> Any:
    """A batch of graphs pooled by the graph of each node."""
    net = nn.Linear(8, 8)

    @compile
    def forward(x: torch.Tensor, batch: torch.Tensor, count: int) -> Any:
        h = net(x).relu()
        mean = torch.zeros(count, 8).scatter_reduce(0, batch.unsqueeze(-1).expand_as(h), h, "mean", include_self=False)
        most = torch.zeros(count, 8).scatter_reduce(0, batch.unsqueeze(-1).expand_as(h), h, "amax", include_self=False)
        return torch.cat([mean, most], -1)

    batches = (torch.tensor([0, 0, 1, 1, 1]), torch.tensor([0, 1, 1, 2, 2, 2, 3]), torch.tensor([0, 0, 0, 1]))
    return [forward(torch.randn(len(b), 8), b, int(b.max()) + 1) for b in batches]


@program("graph networks")
def label_propagation(compile: Compile) -> Any:
    """Label propagation: a fixed number of rounds over a dense adjacency."""

    @compile
    def propagate(adjacency: torch.Tensor, labels: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
        transition = adjacency / adjacency.sum(1, keepdim=True).clamp(min=1)
        y = labels
        for _ in range(5):
            y = torch.where(known.unsqueeze(-1), labels, transition @ y)
        return y.argmax(-1)

    return [propagate((torch.rand(n, n) < 0.5).float(), torch.rand(n, 3), torch.rand(n) < 0.5) for n in (5, 8)]


@program("graph networks")
def edge_update(compile: Compile) -> Any:
    """Edges and nodes updated in turn, as in interaction networks."""
    of_edge, of_node = nn.Linear(8 * 2 + 4, 4), nn.Linear(8 + 4, 8)

    @compile
    def forward(x: torch.Tensor, edges: torch.Tensor, features: torch.Tensor) -> Any:
        source, target = edges
        for _ in range(2):
            features = of_edge(torch.cat([x[source], x[target], features], -1)).tanh()
            gathered = x.new_zeros(x.shape[0], 4).index_add_(0, target, features)
            x = of_node(torch.cat([x, gathered], -1)).tanh()
        return x, features

    return [forward(x, e, torch.randn(e.shape[1], 4)) for x, e in some_graphs()]
