# SPDX-License-Identifier: MIT
"""DeepEP's V2 on weft beside dispatch and combine: all-gathers, messages, tables, domains of ranks,
helpers of test programs; and DeepEP's own tests. Skipped without PyTorch."""
import os
import sys
from pathlib import Path

import pytest
import weft
from ranks import run_peer_test
from torch_ranks import in_group, on_group, torch
from weft.drop_in import folder

sys.path.insert(0, folder())
import deep_ep  # noqa: E402
from deep_ep.buffers.elastic import ElasticBuffer  # noqa: E402
from deep_ep.utils.gate import get_unbalanced_scores  # noqa: E402
from test_elastic import generator_of  # noqa: E402


@on_group(3)
def test_sessions_of_all_gathers(group):
    rank, num_ranks, shapes = group.rank(), group.size(), [(3, 5), (64,), (0, 2)]

    def of(r, i, number):
        return torch.full(shapes[i], 100 * number + 10 * i + r, dtype=torch.int32)

    sizes = ElasticBuffer.get_agrs_num_max_session_bytes(group, shapes, torch.int32)
    assert sizes == 3 * 64 + 3 * 256 and ElasticBuffer.get_agrs_num_max_session_bytes(
        group, (3, 5), torch.int32) == 3 * 64
    buffer = ElasticBuffer(group, num_bytes=ElasticBuffer.get_agrs_buffer_size_hint(
        group, sizes))
    buffer.agrs_set_config(sizes, 3)
    for number in range(4):
        with buffer.agrs_new_session():
            mine = tuple(of(rank, i, number) for i in range(3))
            if number % 2:  # where they are gathered
                places = buffer.agrs_get_inplace_tensor(shapes, torch.int32)
                for place, tensor in zip(places, mine):
                    place.copy_(tensor)
                mine = places
            if number < 2:
                *gathered, wait = buffer.all_gather(mine)
                waits = [wait]
            else:
                gathered, waits = zip(*map(buffer.all_gather, mine))
            for wait in waits:
                wait()
            for i, tensor in enumerate(gathered):
                assert torch.equal(tensor, torch.stack(
                    [of(r, i, number) for r in range(num_ranks)]))
            if number == 3:
                with pytest.raises(weft.CapacityError, match="3 all-gathers"):
                    buffer.all_gather(mine[0])
    with buffer.agrs_new_session(), pytest.raises(weft.CapacityError, match="bytes"):
        buffer.all_gather(torch.zeros(1000))
    with pytest.raises(AssertionError, match="no session"):
        buffer.all_gather(mine[0])
    with buffer.agrs_new_session(enabled=False):
        pass


@pytest.mark.parametrize("num_ranks", [1, 2, 4])
@on_group()
def test_messages_in_a_ring(group, num_ranks):
    rank = group.rank()
    after, before = (rank + 1) % num_ranks, (rank - 1) % num_ranks
    buffer = ElasticBuffer(group, num_bytes=ElasticBuffer.get_pp_buffer_size_hint(4096, 2))
    buffer.pp_set_config(4096, 2)
    for number in range(7):  # more than there are slots
        got = torch.empty(5, 7)
        buffer.pp_send(torch.full((5, 7), float(10 * number + rank)), after)
        buffer.pp_recv(got, before)
        assert (got == 10 * number + before).all()
        buffer.pp_send(-got, before)
        buffer.pp_recv(got, after)
        assert (got == -(10 * number + rank)).all()
    buffer.barrier()  # others may still tell what they have taken
    with pytest.raises(weft.CapacityError, match="8192 bytes, .* 4096"):
        buffer.pp_send(torch.empty(2048), after)
    if num_ranks > 3:
        with pytest.raises(weft.InvalidArgumentError, match="no neighbour"):
            buffer.pp_send(got, (rank + 2) % num_ranks)


@pytest.mark.parametrize("environment", [{}, {"WEFT_NODES": "2"}])
def test_entries_of_tables(environment):
    def fetch(group):
        rank, num_ranks, num_entries, hidden = group.rank(), group.size(), 6, 40
        entries = torch.arange(num_ranks * num_entries * hidden).view(-1, hidden).float()
        sf = torch.arange(num_ranks * num_entries * 2).view(-1, 2).int()
        buffer = ElasticBuffer(group, num_bytes=sum(ElasticBuffer.get_engram_storage_size_hint(
            num_entries, hidden, 12)))
        for storage in (entries.to(torch.bfloat16), entries.to(torch.float8_e4m3fn)):
            buffer.engram_write(storage[rank * num_entries:][:num_entries], sf=sf)
            indices = torch.randint(0, len(sf), (5, 3), generator=generator_of(rank)).int()
            for by_columns in (False, True):
                data, scales = buffer.engram_fetch(
                    indices, use_tma_aligned_col_major_sf=by_columns)()
                assert torch.equal(data.float(), storage.float()[indices].view(5, -1))
                assert torch.equal(scales, sf[indices].view(5, -1))
                assert scales.stride() == ((1, 8) if by_columns else (6, 1))
        buffer.barrier()  # others may still fetch

    in_group(fetch, 2, **environment)


@on_group(4, WEFT_NODES="2")
def test_domains(group):
    for is_hybrid, logical in ((True, (2, 2)), (False, (1, 4))):
        buffer = ElasticBuffer(group, allow_hybrid_mode=is_hybrid)
        assert buffer.get_physical_domain_size() == (2, 2)
        assert buffer.get_logical_domain_size() == logical
        assert (buffer.num_scaleout_ranks, buffer.num_scaleup_ranks) == logical
        assert (buffer.scaleout_rank_idx, buffer.scaleup_rank_idx) == divmod(
            group.rank(), logical[1])
        assert deep_ep.get_logical_domain_size(group, is_hybrid) == logical
        for num_experts, topk in ((64, 8), (4, 1), (4, 8)):
            num_sms = buffer.get_theoretical_num_sms(num_experts, topk)
            assert num_sms >= 4 and num_sms % 2 == 0
            assert buffer.get_theoretical_num_qps(num_sms) <= buffer.num_allocated_qps
    assert deep_ep.get_physical_domain_size(group) == (2, 2)


@pytest.mark.parametrize("ratio", [1.0, 2.0, 4.0])
def test_scores_that_favour_a_rank(ratio):
    for num_ranks, topk in ((4, 2), (16, 4)):
        for is_precise, tolerance in ((True, 0.1), (False, 0.25)):
            counts = sum(torch.zeros(1024, num_ranks).scatter_(1, get_unbalanced_scores(
                1024, 8 * num_ranks, num_ranks, topk, ratio, is_precise).topk(topk).indices // 8,
                1).sum(0) for _ in range(2))
            if num_ranks / ratio > topk / 2:  # else rank 0 has too many
                assert abs(counts[0] / counts[1:].mean() - ratio) < tolerance * ratio


@pytest.mark.parametrize("name, options", [
    ("ep", ["--num-processes", "2"]), ("ep", ["--num-processes", "4", "--do-cpu-sync=0"]),
    ("ep", ["--num-processes", "8", "--deterministic"]),
    ("ep", ["--num-nodes", "2", "--test-first-only"]),
    ("ep", ["--num-processes", "3", "--allow-multiple-reduction=0", "--num-experts=30",
            "--masked-ratio=0.3"]),
    ("barrier", []), ("pp", ["--num-processes", "4"]), ("agrs", []),
    ("engram", ["--num-processes", "4", "--use-fp8"])])
def test_of_deep_ep_itself(name, options):
    """Its own programs, unmodified, which are no part of this project."""
    named = os.environ.get("WEFT_TEST_DEEP_EP", "")
    programs = Path(named).parent / "elastic"
    if not named or not programs.is_dir():
        pytest.skip("WEFT_TEST_DEEP_EP does not name a folder beside DeepEP's tests/elastic")
    run_peer_test(str(programs), name, *options, drop_in=folder())
