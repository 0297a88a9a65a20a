"""Two-stage selection: the index against brute force, the choice against the formula."""

import copy
import os
import pickle
import subprocess
import sys

import faiss
import numpy as np
import pytest

from benchmarks.retrieval import ALPHA, Shop, catalogue, single_precision
from zoolib import RidgePosterior
from zoolib.large.retrieval import ProductIndex, two_stage

D = 8
NAN, INF = float("nan"), float("inf")
APPROXIMATE = ["ivf", "ivf8"]
KINDS = ["exact", *APPROXIMATE]


def draws(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def ranked(embeddings, query, ids=None):
    """Ids by inner product, best first, in double precision."""
    ids = np.arange(len(embeddings)) if ids is None else np.asarray(ids)
    return ids[np.argsort(-(embeddings[ids] @ query))]


def everything(index, query=None):
    """All products with their scores: what the index holds."""
    query = np.arange(1.0, index.n_features + 1) if query is None else query
    return [*index.search(query, len(index)), index.embeddings(index.ids)]


def same(before, after):
    return all(map(np.array_equal, before, after))


def index_for(kind, n=300, **options):
    if kind != "exact":
        options = {"n_cells": 12, "n_probe": 3} | options
    return ProductIndex(draws(n, D), kind, **options)


def learnt(n=30, d=D, seed=3):
    posterior = RidgePosterior(d, ridge=2.0)
    for x, reward in zip(draws(n, d, seed=seed), draws(n, seed=seed + 1), strict=True):
        posterior.update(x, reward)
    return posterior


def test_exact_search_is_brute_force():
    embeddings, queries = draws(300, D), draws(4, 5, D, seed=1)
    ids, scores = ProductIndex(embeddings).search(queries, 17)
    assert ids.shape == scores.shape == (4, 5, 17)
    for place in np.ndindex(4, 5):
        assert ids[place].tolist() == ranked(embeddings, queries[place])[:17].tolist()
        wanted = embeddings[ids[place]] @ queries[place]
        np.testing.assert_allclose(scores[place], wanted, rtol=1e-5, atol=1e-5)


def test_no_query_has_no_answer():
    ids, scores = index_for("ivf").search(np.empty((2, 0, D)), 5)
    assert ids.shape == scores.shape == (2, 0, 5)
    assert index_for("exact").recall(np.empty((0, D)), 5).shape == (0,)


def test_one_query_needs_no_batch():
    index, query = index_for("ivf"), draws(D, seed=1)
    ids, scores = index.search(query, 5)
    assert ids.shape == scores.shape == (5,)
    assert index.search(query[None], 5)[0][0].tolist() == ids.tolist()


def test_all_cells_probed_are_brute_force():
    embeddings, query = draws(300, D), draws(D, seed=1)
    index = index_for("ivf", n_probe=12)
    assert (
        index.search(query, 50)[0].tolist() == ranked(embeddings, query)[:50].tolist()
    )


def test_one_probe_finds_the_products_nearest_to_one_centre():
    """Cells are by the largest inner product with a centre, and so are the probes."""
    embeddings, query = draws(300, D), draws(D, seed=1)
    index = index_for("ivf", n_probe=1)
    centres = index._index.quantizer.reconstruct_n(0, 12)
    cell = (embeddings @ centres.T).argmax(axis=1)
    inside = np.flatnonzero(cell == (centres @ query).argmax())
    found = index.search(query, len(inside))[0]
    assert found.tolist() == ranked(embeddings, query, inside).tolist()


def test_recall_is_the_share_of_the_exact_best():
    embeddings, queries = draws(300, D), draws(2, 3, D, seed=1)
    index = index_for("ivf", n_probe=2)
    recall = index.recall(queries, 20)
    assert recall.shape == (2, 3)
    for place in np.ndindex(2, 3):
        best = set(ranked(embeddings, queries[place])[:20].tolist())
        found = set(index.search(queries[place], 20)[0].tolist())
        assert recall[place] == len(best & found) / 20
    assert recall.mean() < 1
    assert np.all(ProductIndex(embeddings).recall(queries, 20) == 1)


def test_recall_after_removal_is_of_what_is_left():
    embeddings, query = draws(300, D), draws(D, seed=1)
    index = ProductIndex(embeddings)
    index.remove(ranked(embeddings, query)[:7])
    assert index.recall(query, 20) == 1


def test_more_probes_find_more():
    index, queries = index_for("ivf"), draws(50, D, seed=1)
    shares = []
    for index.n_probe in (1, 2, 4, 8, 12):
        shares.append(index.recall(queries, 20).mean())
    assert shares == sorted(shares)
    assert shares[0] < 0.6
    assert shares[-1] == 1


def test_eight_bits_score_nearly_as_well():
    embeddings, query = draws(300, D), draws(D, seed=1)
    index = index_for("ivf8", n_probe=12)
    ids, scores = index.search(query, 50)
    error = np.abs(scores - embeddings[ids] @ query)
    assert 0 < error.max() < 0.1
    assert index.recall(query, 50) >= 0.9
    assert index._index.code_size == D


@pytest.mark.parametrize("kind", APPROXIMATE)
def test_a_search_beyond_the_probed_cells_goes_on(kind):
    """One probe of twelve holds about 25 products: still all 300 come, each once."""
    index = index_for(kind, n_probe=1)
    ids, scores = index.search(draws(3, D, seed=1), 300)
    assert np.sort(ids).tolist() == [list(range(300))] * 3
    assert np.all(np.diff(scores) <= 0)
    assert index.n_probe == 1


def test_eight_bits_describe_what_differs_within_a_cell():
    """Two kinds of products, 2 apart: 256 steps over the whole range would be .008 wide."""
    embeddings = np.outer(np.repeat([1, -1], 50), np.eye(D)[0]) + 0.01 * draws(100, D)
    index = ProductIndex(embeddings, "ivf8", n_cells=2)
    query = np.eye(D)[0]
    ids, scores = index.search(query, 50)
    np.testing.assert_allclose(scores, embeddings[ids] @ query, atol=5e-4)


def test_more_cells_are_probed_by_doubling(monkeypatch):
    index, probed = index_for("ivf", n_probe=1), []
    found = index._found
    monkeypatch.setattr(index, "_found", lambda *a: probed.append(a[2]) or found(*a))
    index.search(draws(D, seed=1), 300)
    assert probed == [1, 2, 4, 8, 12]


@pytest.mark.parametrize("kind", APPROXIMATE)
def test_the_same_seed_gives_the_same_index(kind):
    queries = draws(20, D, seed=1)
    one, again, other = (index_for(kind, seed=seed) for seed in (5, 5, 6))
    assert same(one.search(queries, 30), again.search(queries, 30))
    assert not same(one.search(queries, 30), other.search(queries, 30))


def test_a_seed_may_be_large():
    assert len(index_for("ivf", seed=2**70)) == 300


def test_numbers_at_the_limit_still_multiply():
    index = ProductIndex([[9e14] * 2, [-9e14] * 2], "ivf8", n_cells=1)
    scores = index.search([9e14, 9e14], 2)[1]
    np.testing.assert_allclose(scores, [2 * 9e14**2, -2 * 9e14**2], rtol=1e-2)


def test_defaults_are_a_root_of_cells_and_an_eighth_of_probes():
    index = ProductIndex(draws(330, D), "ivf")
    assert (index.n_cells, index.n_probe) == (18, 3)
    assert ProductIndex(draws(1, D), "ivf8").n_probe == 1


def test_many_products_are_trained_on_a_sample_of_them(capfd):
    """What k-means reads grows with the cells, not with the products; and nothing is printed."""
    index = ProductIndex(draws(5000, D), "ivf", n_cells=4, n_probe=1)
    ProductIndex(draws(9, D), "ivf", n_cells=9)
    assert index._index.cp.max_points_per_centroid == 64
    assert len(index) == 5000
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", KINDS)
def test_products_come_and_go(kind):
    options = {} if kind == "exact" else {"n_probe": 12}
    index, query = index_for(kind, **options), draws(D, seed=1)
    embeddings = np.vstack((draws(300, D), draws(40, D, seed=2), draws(1, D, seed=4)))
    assert index.add(embeddings[300:340]).tolist() == list(range(300, 340))
    best = ranked(embeddings[:340], query)
    index.remove([*best[:5], best[0]])
    assert len(index) == 335
    assert index.ids.tolist() == sorted(best[5:].tolist())
    assert index.add(embeddings[340:]).tolist() == [340]
    left = np.setdiff1d(np.arange(341), best[:5])
    wanted = ranked(embeddings, query, left)
    found = index.search(query, 336)[0]
    if kind == "ivf8":
        assert np.isin(found[:20], wanted[:25]).all()
    else:
        assert found.tolist() == wanted.tolist()
    assert (
        index.embeddings(left).tolist() == embeddings[left].astype(np.float32).tolist()
    )


def test_an_exact_index_may_begin_and_end_empty():
    index = ProductIndex(np.empty((0, 3)))
    assert len(index) == 0
    with pytest.raises(ValueError, match="n must be at most 0: got 1"):
        index.search(np.ones(3), 1)
    ids = index.add([[1.0, 2.0, 3.0]])
    assert index.search(np.ones(3), 1)[0].tolist() == [0]
    index.remove(ids)
    assert len(index) == 0
    assert index.add(np.ones((2, 3))).tolist() == [1, 2]
    assert index.add(np.empty((0, 3))).tolist() == []


@pytest.mark.parametrize("ids", [7, [7, 7], [[7]], [[7, 8, 9], [20, 21, 7]]])
@pytest.mark.parametrize("kind", KINDS)
def test_ids_to_remove_come_in_any_shape(kind, ids):
    index = index_for(kind)
    index.remove(ids)
    left = np.setdiff1d(np.arange(300), ids).tolist()
    assert index.ids.tolist() == left
    assert len(index) == len(left)
    assert sorted(index.search(draws(D, seed=1), len(left))[0].tolist()) == left


def test_the_index_keeps_a_copy():
    embeddings = draws(300, D).astype(np.float32)
    index = ProductIndex(embeddings)
    before = everything(index)
    embeddings[:] = 0
    assert same(before, everything(index))


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_can_be_copied_and_stored(kind):
    index = index_for(kind)
    before = everything(index)
    twin, stored = copy.deepcopy(index), pickle.loads(pickle.dumps(index))
    index.remove([0, 1])
    for other in (twin, stored):
        assert same(before, everything(other))


@pytest.mark.parametrize("kind", KINDS)
def test_threads_are_held_during_work_only(kind, monkeypatch):
    seen = []
    before = faiss.omp_get_max_threads()
    index = index_for(kind, n_threads=1)
    found = index._found

    def watched(*arguments):
        seen.append(faiss.omp_get_max_threads())
        return found(*arguments)

    monkeypatch.setattr(index, "_found", watched)
    faiss.omp_set_num_threads(2)
    try:
        index.search(draws(D), 5)
        assert faiss.omp_get_max_threads() == 2
        index.n_threads = None
        index.search(draws(D), 5)
    finally:
        faiss.omp_set_num_threads(before)
    assert seen == [1, 2]


def test_threads_come_back_after_an_error(monkeypatch):
    index = index_for("exact", n_threads=1)
    monkeypatch.setattr(index, "_found", lambda *arguments: 1 / 0)
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(2)
    try:
        with pytest.raises(ZeroDivisionError):
            index.search(draws(D), 5)
        assert faiss.omp_get_max_threads() == 2
    finally:
        faiss.omp_set_num_threads(before)


@pytest.mark.parametrize("order", ["torch, faiss", "faiss, torch"])
def test_torch_and_faiss_live_together_in_either_order(order):
    """Both bring an OpenMP of their own; both compute, and do so on one thread if asked to."""
    code = f"""
import {order}
import numpy as np
from zoolib._support.threads import one_thread
from zoolib.large.retrieval import ProductIndex
assert torch.get_num_threads() == faiss.omp_get_max_threads() == 2
with one_thread():
    assert torch.get_num_threads() == faiss.omp_get_max_threads() == 1
    x = torch.ones(300, 300, requires_grad=True)
    (x @ x).sum().backward()
    index = ProductIndex(np.random.default_rng(0).normal(size=(2000, 8)), "ivf8")
    print(index.search(np.ones((50, 8)), 10)[0].shape, float(x.grad[0, 0]))
"""
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout == "(50, 10) 600.0\n", run.stderr


FOUR = np.ones((4, 2))
WRONG_BUILDS = [
    ((FOUR, "hnsw"), {}, ValueError, "kind must be one of"),
    ((np.ones(4),), {}, ValueError, r"shape \(n_products, d\): got \(4,\)"),
    ((np.ones((4, 0)),), {}, ValueError, "d must be at least 1: got 0"),
    (([[1.0, NAN]],), {}, ValueError, "embeddings must be finite .* got nan"),
    (([[1.0, INF]],), {}, ValueError, "embeddings must be finite .* got inf"),
    (([[1.0, -1e300]],), {}, ValueError, r"got -1e\+300"),
    (([[1.0, 1e16]],), {}, ValueError, r"below 1e\+15"),
    ((np.empty((0, 2)), "ivf"), {}, ValueError, "n_cells must be at most 0: got 1"),
    (
        (FOUR, "ivf"),
        {"n_cells": 5},
        ValueError,
        "n_cells must be at most 4: got 5",
    ),
    (
        (FOUR, "ivf"),
        {"n_cells": 0},
        ValueError,
        "n_cells must be at least 1",
    ),
    ((FOUR, "ivf"), {"n_cells": 2.5}, TypeError, "n_cells must be a whole"),
    (
        (FOUR, "ivf8"),
        {"n_cells": 2, "n_probe": 3},
        ValueError,
        "n_probe must be at most 2: got 3",
    ),
    (
        (FOUR, "ivf"),
        {"n_probe": 0},
        ValueError,
        "n_probe must be at least 1",
    ),
    ((FOUR,), {"n_cells": 2}, ValueError, "omitted for kind 'exact': got 2"),
    ((FOUR,), {"n_probe": 1}, ValueError, "got None and 1"),
    ((FOUR,), {"n_threads": 0}, ValueError, "n_threads must be at least 1"),
    ((FOUR,), {"seed": -1}, ValueError, "seed must be at least 0"),
]


@pytest.mark.parametrize(("arguments", "options", "error", "words"), WRONG_BUILDS)
def test_what_cannot_be_built_is_refused(arguments, options, error, words):
    with pytest.raises(error, match=words):
        ProductIndex(*arguments, **options)


WRONG_CALLS = [
    (lambda i: i.search(np.ones(D + 1), 3), ValueError, rf"\(..., {D}\): got \(9,\)"),
    (lambda i: i.search(1.0, 3), ValueError, r"got \(\)"),
    (lambda i: i.search(np.full(D, NAN), 3), ValueError, "queries must be finite"),
    (lambda i: i.search(np.full(D, -INF), 3), ValueError, "queries must be finite"),
    (lambda i: i.search(np.ones(D), 301), ValueError, "n must be at most 300: got 301"),
    (lambda i: i.search(np.ones(D), 0), ValueError, "n must be at least 1"),
    (lambda i: i.search(np.ones(D), 2.0), TypeError, "n must be a whole number"),
    (lambda i: i.recall(np.ones(D - 1), 3), ValueError, "queries must have shape"),
    (lambda i: i.recall(np.ones(D), 301), ValueError, "n must be at most 300"),
    (lambda i: i.add(np.ones((2, D - 1))), ValueError, rf"\(n, {D}\): got \(2, 7\)"),
    (lambda i: i.add(np.ones(D)), ValueError, rf"\(n, {D}\): got \(8,\)"),
    (lambda i: i.add(np.ones((1, 2, D))), ValueError, r"got \(1, 2, 8\)"),
    (
        lambda i: i.add([[1.0] * (D - 1) + [NAN]]),
        ValueError,
        "embeddings must be finite",
    ),
    (lambda i: i.remove([3, 300]), ValueError, "ids must lie in 0 … 299: got 300"),
    (lambda i: i.remove([3, -1]), ValueError, "ids must lie in 0 … 299: got -1"),
    (lambda i: i.remove([0.5]), TypeError, "ids must hold whole numbers"),
    (lambda i: i.embeddings([300]), ValueError, "ids must lie in 0 … 299: got 300"),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("call", "error", "words"), WRONG_CALLS)
def test_a_wrong_call_says_what_was_wanted_and_changes_nothing(
    kind, call, error, words
):
    index = index_for(kind)
    before = everything(index)
    with pytest.raises(error, match=words):
        call(index)
    assert same(before, everything(index))
    assert index.add(np.ones((1, D))).tolist() == [300]


@pytest.mark.parametrize("value", [0, 13, 1.5])
def test_probes_that_do_not_fit_are_refused(value):
    index = index_for("ivf")
    index.n_probe = value
    with pytest.raises((TypeError, ValueError), match="n_probe must be"):
        index.search(np.ones(D), 3)


def test_a_removed_product_is_not_known_any_more():
    index = index_for("exact")
    index.remove([4])
    for call in (index.remove, index.embeddings):
        with pytest.raises(
            ValueError, match="ids must be of products held: got 4, removed"
        ):
            call([3, 4])
    assert len(index) == 299


def bounds(posterior, embeddings, visitor, alpha):
    """Upper confidence bounds by the formula, one product at a time."""
    inverse = np.linalg.inv(posterior.A)
    rows = visitor * embeddings
    return np.array(
        [x @ inverse @ posterior.b + alpha * np.sqrt(x @ inverse @ x) for x in rows]
    )


def test_a_shortlist_of_everything_gives_the_full_bound():
    posterior, visitor = learnt(), draws(D, seed=7)
    wanted = bounds(posterior, draws(300, D), visitor, 0.7)
    choice = two_stage(index_for("exact"), posterior, visitor, 0.7, n_candidates=300)
    assert choice.candidates.tolist() == list(range(300))
    np.testing.assert_allclose(choice.scores, wanted, rtol=1e-5, atol=1e-6)
    assert choice.product == wanted.argmax()


def test_the_shortlist_holds_the_best_predictions_and_the_choice_its_best_bound():
    posterior, visitor, embeddings = learnt(), draws(D, seed=7), draws(300, D)
    predictions = bounds(posterior, embeddings, visitor, 0.0)
    short = np.argsort(-predictions)[:20]
    choice = two_stage(index_for("exact"), posterior, visitor, 3.0, n_candidates=20)
    assert choice.candidates.tolist() == sorted(short.tolist())
    wanted = bounds(posterior, embeddings, visitor, 3.0)[choice.candidates]
    assert choice.product == choice.candidates[wanted.argmax()]
    assert choice.product != short[0]
    greedy = two_stage(index_for("exact"), posterior, visitor, 0.0, n_candidates=20)
    assert greedy.product == short[0]


def test_the_benchmark_without_a_shortlist_has_every_bound():
    shop = Shop(300)
    wanted = bounds(shop.posterior, shop.table, shop.visitors[0], ALPHA)
    found = single_precision(shop, shop.visitors[0])
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert found.dtype == np.float32


def test_several_weights_share_the_shortlist():
    posterior, visitor, embeddings = learnt(), draws(D, seed=7), draws(300, D)
    weights = np.array([posterior.mean, draws(D, seed=8), posterior.mean])
    index = index_for("exact")
    choice = two_stage(index, posterior, visitor, 1.0, n_candidates=20, weights=weights)
    parts = [ranked(embeddings, visitor * theta)[:7].tolist() for theta in weights[:2]]
    assert choice.candidates.tolist() == sorted({*parts[0], *parts[1]})
    same_as_mean = two_stage(index, posterior, visitor, 1.0, 20, posterior.mean)
    assert np.array_equal(
        same_as_mean.candidates,
        two_stage(index, posterior, visitor, 1.0, 20).candidates,
    )


def test_eight_bit_codes_shortlist_but_exact_embeddings_choose():
    posterior, visitor, embeddings = learnt(), draws(D, seed=7), draws(300, D)
    index = index_for("ivf8")
    choice = two_stage(index, posterior, visitor, 1.0, n_candidates=20)
    wanted = bounds(posterior, embeddings, visitor, 1.0)[choice.candidates]
    np.testing.assert_allclose(choice.scores, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"alpha": -1.0}, "alpha must be 0 or more and finite: got -1"),
        ({"alpha": NAN}, "alpha must be 0 or more"),
        ({"n_candidates": 0}, "n_candidates must be at least 1"),
        ({"n_candidates": 301}, "n_candidates must be at most 300"),
        ({"visitor": np.ones(D - 1)}, r"visitor must have shape \(8,\): got \(7,\)"),
        ({"visitor": np.full(D, NAN)}, "visitor must be finite"),
        ({"weights": np.ones(D - 1)}, r"weights .* shape \(m, 8\): got \(1, 7\)"),
        ({"weights": np.ones((6, D))}, "m.* must be at most 5: got 6"),
        ({"weights": np.ones((0, D))}, "m.* must be at least 1: got 0"),
        ({"weights": np.full(D, INF)}, "weights must be finite"),
        ({"posterior": RidgePosterior(D + 1)}, r"got shape \(\) and 9 features"),
        ({"posterior": RidgePosterior(D, shape=(2,))}, r"got shape \(2,\)"),
    ],
)
def test_stages_that_do_not_fit_are_refused(options, words):
    usual = {
        "posterior": learnt(),
        "visitor": np.ones(D),
        "alpha": 1.0,
        "n_candidates": 5,
    }
    with pytest.raises(ValueError, match=words):
        two_stage(index_for("exact"), **usual | options)


@pytest.mark.parametrize(
    ("embeddings", "least"),
    [(catalogue(50_000, seed=0), 0.9), (draws(50_000, 32), 0.5)],
    ids=["clusters", "gaussian"],
)
def test_a_catalogue_of_fifty_thousand_is_searched_well(embeddings, least):
    """An eighth of the cells is plenty where products cluster, and not where they do not."""
    index = ProductIndex(embeddings, "ivf8")
    queries = draws(40, 32, seed=1) * draws(32, seed=2)
    assert index.recall(queries, 500).mean() >= least
    choice = two_stage(index, learnt(d=32), queries[0], alpha=1.0)
    assert choice.product in choice.candidates
    assert len(choice.candidates) == 500
