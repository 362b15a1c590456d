"""CUDA graphs on a real device: what is replayed equals eager, whoever holds which result. Runs where there is one."""

from __future__ import annotations

import copy
import ctypes
import gc
import threading

import pytest
import torch

import stoker
from stoker import log
from stoker.cudagraph.choose import PLAIN
from stoker.cudagraph.cuda import CudaDriver
from stoker.cudagraph.structures import Pointer, libcuda

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class Block(torch.nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def network(layers: int = 4, width: int = 64) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(*(Block(width) for _ in range(layers))).cuda()


def compiled(model):
    return stoker.compile(model, mode="reduce-overhead")


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.fixture(autouse=True)
def fresh():
    log.clear()


def recorded() -> list:
    return [e.data for e in log.events("cudagraph") if e.data is not None and e.data.way != PLAIN]


def test_inference_with_inputs_that_move():
    model = network()
    fast = compiled(model)
    kept = []
    with torch.no_grad():
        for _ in range(12):
            x = torch.randn(8, 16, 64, device="cuda")
            kept.append((x, fast(x)))
        for x, y in kept:
            close(y, model(x))
    assert recorded()


def test_training_for_200_steps():
    model = network()
    twin = copy.deepcopy(model)
    fast = compiled(twin)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9) for m in (model, twin)]
    torch.cuda.synchronize()
    memory = []
    for step in range(200):
        x = torch.randn(8, 16, 64, device="cuda")
        losses = []
        for m, optimizer in zip((model, fast), optimizers):
            optimizer.zero_grad()
            loss = m(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        torch.testing.assert_close(losses[0], losses[1], rtol=1e-3, atol=1e-5)
        if step in (50, 199):
            torch.cuda.synchronize()
            memory.append(torch.cuda.memory_allocated())
    assert memory[1] <= memory[0] * 1.05
    for a, b in zip(model.parameters(), twin.parameters()):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-3)


def test_a_server_with_alternating_sizes():
    model = network()
    fast = stoker.compile(model, mode="reduce-overhead", dynamic=True)
    sizes = [3, 8, 5, 16, 9]
    with torch.no_grad():
        for number in range(60):
            x = torch.randn(sizes[number % 5], 16, 64, device="cuda")
            close(fast(x), model(x))
    assert recorded()


def test_weights_replaced_and_moved():
    model = network()
    fast = compiled(model)
    with torch.no_grad():
        for number in range(16):
            x = torch.randn(8, 16, 64, device="cuda")
            close(fast(x), model(x))
            if number == 6:
                model[0].up.weight.data = torch.randn_like(model[0].up.weight) * 0.1
            if number == 10:
                for p in model.parameters():
                    p.mul_(0.9)
            if number == 12:
                torch.cuda.empty_cache()


def test_random_numbers_are_eagers():
    def f(x):
        return torch.nn.functional.dropout(x, 0.3) * 2 + torch.rand_like(x)

    fast = stoker.compile(f, mode="reduce-overhead")
    x = torch.randn(64, 64, device="cuda")
    found, expected = [], []
    torch.manual_seed(3)
    for _ in range(10):
        found.append(fast(x))
    after = torch.cuda.get_rng_state()
    torch.manual_seed(3)
    for _ in range(10):
        expected.append(f(x))
    for a, b in zip(found, expected):
        torch.testing.assert_close(a, b)
    assert torch.equal(after, torch.cuda.get_rng_state())


def test_parts_on_the_processor():
    def f(x, scale):
        y = (x * scale).sin()
        mask = torch.arange(x.shape[0]).to("cuda") < 4
        total = torch.where(mask[:, None], y, 0.0).sum()
        return y * 2, total.cpu()

    fast = stoker.compile(f, mode="reduce-overhead")
    for _ in range(8):
        x, scale = torch.randn(8, 64, device="cuda"), torch.randn(())
        for a, b in zip(fast(x, scale), f(x, scale)):
            assert a.device == b.device
            torch.testing.assert_close(a, b)
    assert any(e.data is not None for e in log.events("cudagraph")), (
        "recorded and measured; of so little, either may be faster"
    )


def test_a_step_that_waits():
    def f(x):
        y = x @ x.mT + 4 * torch.eye(x.shape[0], device="cuda")
        return torch.linalg.cholesky(y).sin() * 2

    fast = stoker.compile(f, mode="reduce-overhead")
    for _ in range(8):
        x = torch.randn(16, 16, device="cuda")
        torch.testing.assert_close(fast(x), f(x), rtol=1e-3, atol=1e-3)
    assert any("waits" in e.reason for e in log.events("cudagraph"))


def test_streams_and_threads():
    model = network()
    fast = compiled(model)
    failures = []

    def work():
        try:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream), torch.no_grad():
                for _ in range(20):
                    x = torch.randn(8, 16, 64, device="cuda")
                    y = fast(x)
                    close(y, model(x))
        except Exception as error:  # told to the main thread
            failures.append(error)

    with torch.no_grad():
        for _ in range(4):
            fast(torch.randn(8, 16, 64, device="cuda"))
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_inside_a_graph_of_the_user():
    model = network()
    fast = compiled(model)
    x = torch.randn(8, 16, 64, device="cuda")
    with torch.no_grad():
        for _ in range(5):
            fast(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = fast(x)
        x.copy_(torch.randn_like(x))
        graph.replay()
        close(y, model(x))


def test_dropped_models_free_their_memory():
    def once():
        fast = compiled(network(2, 256))
        with torch.no_grad():
            for _ in range(5):
                fast(torch.randn(8, 16, 256, device="cuda"))

    once()
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(5):
        once()
    gc.collect()
    assert torch.cuda.memory_allocated() <= before + (1 << 20)


def test_a_cache_that_is_written():
    """In place, by the recording itself: recording and measuring leave nothing in it."""

    def decode(keys, values, place, query):
        keys.index_copy_(1, place, query)
        values.index_copy_(1, place, query * 2)
        return torch.softmax(keys @ query.mT, 1).mT @ values

    fast = stoker.compile(decode, mode="reduce-overhead")
    ours, eager = ([torch.zeros(4, 64, 32, device="cuda") for _ in range(2)] for _ in range(2))
    moved = [t.clone() for t in ours]
    for number in range(20):
        place, query = torch.tensor([number], device="cuda"), torch.randn(4, 1, 32, device="cuda")
        close(fast(*ours, place, query), decode(*eager, place, query))
        assert all(map(torch.equal, ours, eager))
        fast(*moved, place, query)
        assert all(map(torch.equal, moved, eager))
    assert recorded()


def test_a_cache_whose_place_the_graph_counts_up():
    """Measuring calls it more often than there are places."""

    def decode(keys, place, query):
        keys.index_copy_(1, place, query)
        place.add_(1)
        return torch.softmax(keys @ query.mT, 1)

    fast = stoker.compile(decode, mode="reduce-overhead")
    ours, eager = (
        [torch.zeros(4, 12, 32, device="cuda"), torch.zeros(1, dtype=torch.long, device="cuda")] for _ in range(2)
    )
    for _ in range(10):
        query = torch.randn(4, 1, 32, device="cuda")
        close(fast(*ours, query), decode(*eager, query))
        assert all(map(torch.equal, ours, eager))
    assert recorded()


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_training_steps_with_the_optimizer(optimizer):
    model = network(2)
    twin = copy.deepcopy(model)
    ours, eager = optimizer(twin.parameters(), lr=0.01), optimizer(model.parameters(), lr=0.01)

    def step(model, optimizer, x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    fast = stoker.compile(step, mode="reduce-overhead")
    for _ in range(20):
        x = torch.randn(8, 16, 64, device="cuda")
        torch.testing.assert_close(fast(twin, ours, x), step(model, eager, x), rtol=1e-3, atol=1e-4)
    for a, b in zip(model.parameters(), twin.parameters()):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-3)


def test_fills_become_kernels():
    """But for those that are not whole words."""
    library, memory = libcuda(), torch.full((5, 4096), 77, dtype=torch.uint8, device="cuda")
    expected = memory.clone()
    expected[0], expected[1, :2048], expected[2, 8:12], expected[3, :7] = 0xAB, 0x12, 0xCD, 0xEE
    after = memory.clone()

    def run():
        stream, places = Pointer(torch.cuda.current_stream().cuda_stream), [Pointer(m.data_ptr()) for m in memory]
        after.copy_(memory)
        assert not library.cuMemsetD8Async(places[0], 0xAB, ctypes.c_size_t(4096), stream)
        assert not library.cuMemsetD16Async(places[1], 0x1212, ctypes.c_size_t(1024), stream)
        assert not library.cuMemsetD32Async(Pointer(places[2].value + 8), 0xCDCDCDCD, ctypes.c_size_t(1), stream)
        assert not library.cuMemsetD8Async(places[3], 0xEE, ctypes.c_size_t(7), stream)
        after.copy_(memory)
        return ()

    captured, _ = CudaDriver(0, draws=False).capture(run)
    assert sorted(node.kind for node in captured.nodes).count("fill") == 1
    assert not library.cuGraphLaunch(Pointer(captured.executable), None)
    torch.cuda.synchronize()
    assert torch.equal(memory, expected) and torch.equal(after, expected)


def test_attention_that_drops_stands_apart():
    """Its seeds lie in the processor's memory, but for recordings: the gradient must not read them from elsewhere."""

    def program(q, k, v):
        kept = torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.3)
        return kept, torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=0.2).tanh()

    fast = compiled(program)
    for number in range(6):
        given = [torch.randn(2, 2, 16, 16, device="cuda", requires_grad=True) for _ in range(3)]
        results = []
        for way in (program, fast):
            torch.manual_seed(number)
            out = way(*given)
            results.append([*out, *torch.autograd.grad([o.sum() for o in out], given), torch.cuda.get_rng_state()])
        close(results[1], results[0])


def test_a_result_that_its_gradient_needs_must_not_be_written():
    fast = compiled(lambda x: (x.exp(), x.sigmoid()))
    for _ in range(6):
        x = torch.randn(3, 3, device="cuda", requires_grad=True)
        grown, bounded = fast(x)
        grown.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            (grown.sum() + bounded.sum()).backward()
        del grown, bounded


def test_measuring_draws_none_of_the_program_s_numbers():
    layer = torch.nn.Linear(64, 128).cuda().half()
    state = torch.cuda.get_rng_state()
    with torch.no_grad():
        stoker.compile(layer, mode="max-autotune")(torch.ones(32, 64, device="cuda", dtype=torch.float16))
    assert torch.equal(torch.cuda.get_rng_state(), state)


def test_numbers_that_the_processor_makes_of_numbers_are_constants():
    """The graph is recorded whole, and an event says what would have kept it out."""

    def program(x):
        return x / torch.sqrt(torch.tensor(x.shape[-1], dtype=torch.float32) * 3)

    fast = compiled(program)
    with torch.no_grad():
        for _ in range(5):
            x = torch.randn(8, 64, device="cuda")
            close(fast(x), program(x))
    assert recorded() and not [e for e in log.events("cudagraph") if e.data is None]
    assert [e for e in log.events("improved") if "detour" in (e.reason or "")]
