/*
 * Where pages of keys and values lie on machines of several memory nodes. Each node has a part of
 * the pool. The KV heads of a slot are divided among the nodes, so that whatever reads a head, a
 * shared beginning included, finds its pages on one of them. Heads that cannot be divided evenly
 * have their pages on all nodes in turns.
 */
#ifndef SKV_BACKEND_NODES_H
#define SKV_BACKEND_NODES_H

#include <stdbool.h>
#include <stddef.h>

/** The first of n_pages pages in the part of node i; that of node n_nodes is n_pages. Parts begin
 * at multiples of 64, so the first ones may be empty. */
static inline size_t skv_node_pages(size_t n_pages, size_t i, size_t n_nodes)
{
    return i == n_nodes ? n_pages : n_pages * i / n_nodes / 64 * 64;
}

/** Whether each node has as many of n heads. */
static inline bool skv_nodes_divide(size_t n_heads, size_t n_nodes)
{
    return n_heads % n_nodes == 0;
}

/** The node for a head's page i. */
static inline size_t skv_node_of_head(size_t i_head, size_t n_heads, size_t i, size_t n_nodes)
{
    return skv_nodes_divide(n_heads, n_nodes) ? i_head * n_nodes / n_heads : i % n_nodes;
}

#endif
