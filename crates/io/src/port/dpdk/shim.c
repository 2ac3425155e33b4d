/* What Rust needs of DPDK, as ordinary functions: much of DPDK is `static inline`, and its structures are no stable interface.
 *
 * Numbers that are returned are 0 or more, or an error of errno.h with its sign changed. sys.rs declares what is here.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <rte_alarm.h>
#include <rte_common.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_version.h>

/* Frames that one call sends at most. */
#define BURST 64

/* Buffers of a pool that the thread which began DPDK has at hand. */
#define AT_HAND 256

/* Room in a buffer for a frame of this MTU's, with two VLAN tags. */
#define FRAME_ROOM(mtu) RTE_ALIGN((uint32_t)(mtu) + RTE_ETHER_HDR_LEN + 2 * 4, RTE_CACHE_LINE_SIZE)

struct rivulet_dpdk_device {
    uint32_t mtu;
    /* The kernel's number of the interface that the device is on; 0 if it is on none. */
    uint32_t interface;
    /* Pairs of queues, each of them for a thread. */
    uint16_t queues;
    uint8_t address[RTE_ETHER_ADDR_LEN];
};

struct rivulet_dpdk_counters {
    uint64_t missed;
    uint64_t errors;
};

struct rivulet_dpdk_tag {
    uint16_t protocol;
    uint16_t control;
};

const char *rivulet_dpdk_version(void) {
    return rte_version();
}

/* Begins DPDK, which a process can do once. */
int rivulet_dpdk_begin(int argc, char **argv) {
    return rte_eal_init(argc, argv) < 0 ? -(rte_errno ? rte_errno : EINVAL) : 0;
}

/* Has DPDK's own thread call this. */
int rivulet_dpdk_call(void (*call)(void *), void *argument) {
    return rte_eal_alarm_set(1, call, argument);
}

/* Makes a virtual device. */
int rivulet_dpdk_plug(const char *name, const char *arguments) {
    return rte_eal_hotplug_add("vdev", name, arguments);
}

int rivulet_dpdk_unplug(const char *name) {
    return rte_eal_hotplug_remove("vdev", name);
}

/* The port of the device with this name. */
int rivulet_dpdk_find(const char *name) {
    uint16_t port;
    int error = rte_eth_dev_get_port_by_name(name, &port);
    return error ? error : port;
}

/* Frees the pools, and stops the device. */
static void shut(uint16_t port, void **pools, uint16_t queues) {
    /* Whatever they say, nothing more can be done. */
    (void)rte_eth_dev_stop(port);
    (void)rte_eth_dev_close(port);
    for (uint16_t queue = 0; queue < queues; queue++) {
        rte_mempool_free(pools[queue]);
        pools[queue] = NULL;
    }
}

static int set_up(uint16_t port, uint16_t frames, uint32_t buffers, struct rivulet_dpdk_device *device,
                  const struct rte_eth_dev_info *info, void **pools) {
    struct rte_eth_conf conf = {.rxmode.mtu = device->mtu};
    if (device->queues > 1 && info->flow_type_rss_offloads) {
        const uint64_t wanted = RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP;
        conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
        conf.rx_adv_conf.rss_conf.rss_hf = wanted & info->flow_type_rss_offloads;
    }
    int error = rte_eth_dev_configure(port, device->queues, device->queues, &conf);
    uint16_t receiving = frames, sending = frames;
    if (!error)
        error = rte_eth_dev_adjust_nb_rx_tx_desc(port, &receiving, &sending);
    if (error)
        return error;

    uint32_t room = RTE_MAX(FRAME_ROOM(device->mtu), (uint32_t)RTE_MBUF_DEFAULT_DATAROOM);
    room = RTE_MAX(room, info->min_rx_bufsize) + RTE_PKTMBUF_HEADROOM;
    if (room > UINT16_MAX)
        return -ENOTSUP;
    const int socket = rte_eth_dev_socket_id(port);
    for (uint16_t queue = 0; queue < device->queues; queue++) {
        char name[RTE_MEMPOOL_NAMESIZE];
        snprintf(name, sizeof(name), "rivulet-%u-%u", port, queue);
        struct rte_mempool *pool = rte_pktmbuf_pool_create(name, buffers, AT_HAND, 0, (uint16_t)room, socket);
        if (!pool)
            return -rte_errno;
        pools[queue] = pool;
        error = rte_eth_rx_queue_setup(port, queue, receiving, (unsigned int)socket, NULL, pool);
        if (!error)
            error = rte_eth_tx_queue_setup(port, queue, sending, (unsigned int)socket, NULL);
        if (error)
            return error;
    }
    error = rte_eth_dev_start(port);
    if (error)
        return error;
    struct rte_ether_addr address;
    error = rte_eth_macaddr_get(port, &address);
    if (!error)
        memcpy(device->address, address.addr_bytes, sizeof(device->address));
    return error;
}

/* Opens a port with up to `device->queues` pairs of queues, each with rings of so many frames and a pool of so many buffers. Nothing is
 * left to the device: no checksum, no cutting, no putting together. */
int rivulet_dpdk_open(uint16_t port, uint16_t frames, uint32_t buffers, struct rivulet_dpdk_device *device, void **pools) {
    struct rte_eth_dev_info info;
    uint16_t mtu;
    int error = rte_eth_dev_info_get(port, &info);
    if (!error)
        error = rte_eth_dev_get_mtu(port, &mtu);
    if (error)
        return error;
    const uint16_t wanted = device->queues;
    device->queues = RTE_MIN(wanted, RTE_MIN(info.max_rx_queues, info.max_tx_queues));
    if (device->queues == 0)
        return -ENOTSUP;
    device->mtu = info.max_mtu ? RTE_MIN(mtu, info.max_mtu) : mtu;
    device->interface = info.if_index;
    memset(pools, 0, wanted * sizeof(*pools));
    error = set_up(port, frames, buffers, device, &info, pools);
    if (error)
        shut(port, pools, device->queues);
    return error;
}

void rivulet_dpdk_close(uint16_t port, void **pools, uint16_t queues) {
    shut(port, pools, queues);
}

int rivulet_dpdk_be_promiscuous(uint16_t port) {
    return rte_eth_promiscuous_enable(port);
}

/* Whether the link is up. */
int rivulet_dpdk_is_up(uint16_t port) {
    struct rte_eth_link link;
    if (!rte_eth_dev_is_valid_port(port) || rte_eth_dev_is_removed(port))
        return -ENODEV;
    int error = rte_eth_link_get_nowait(port, &link);
    return error ? error : link.link_status == RTE_ETH_LINK_UP;
}

int rivulet_dpdk_counters(uint16_t port, struct rivulet_dpdk_counters *counters) {
    struct rte_eth_stats stats;
    int error = rte_eth_stats_get(port, &stats);
    if (!error) {
        counters->missed = stats.imissed;
        counters->errors = stats.ierrors;
    }
    return error;
}

/* Frames that have come, up to so many: each is to be taken. */
uint16_t rivulet_dpdk_receive(uint16_t port, uint16_t queue, void **frames, uint16_t count) {
    return rte_eth_rx_burst(port, queue, (struct rte_mbuf **)frames, count);
}

/* Copies a frame to where there is room for so many bytes, and frees it; how long it is. Whether a tag was taken out is told. */
uint32_t rivulet_dpdk_take(void *frame, uint8_t *to, uint32_t room, struct rivulet_dpdk_tag *tag, uint8_t *has_tag) {
    struct rte_mbuf *first = frame;
    const uint32_t len = first->pkt_len;
    for (const struct rte_mbuf *segment = first; segment && room; segment = segment->next) {
        const uint32_t part = RTE_MIN(segment->data_len, room);
        memcpy(to, rte_pktmbuf_mtod(segment, const uint8_t *), part);
        to += part;
        room -= part;
    }
    *has_tag = (first->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) != 0;
    if (*has_tag) {
        tag->protocol = RTE_ETHER_TYPE_VLAN;
        tag->control = first->vlan_tci;
    }
    rte_pktmbuf_free(first);
    return len;
}

/* Sends frames that lie one behind the other, up to BURST: how many the device has taken. */
int rivulet_dpdk_send(uint16_t port, uint16_t queue, void *pool, const uint8_t *bytes, const size_t *lens, uint16_t count) {
    struct rte_mbuf *frames[BURST];
    if (count > BURST)
        count = BURST;
    if (count == 0)
        return 0;
    if (rte_pktmbuf_alloc_bulk(pool, frames, count))
        return -ENOMEM;
    for (uint16_t i = 0; i < count; i++) {
        char *to = lens[i] <= UINT16_MAX ? rte_pktmbuf_append(frames[i], (uint16_t)lens[i]) : NULL;
        if (!to) {
            rte_pktmbuf_free_bulk(frames, count);
            return -EMSGSIZE;
        }
        memcpy(to, bytes, lens[i]);
        bytes += lens[i];
    }
    const uint16_t taken = rte_eth_tx_burst(port, queue, frames, count);
    if (taken < count)
        rte_pktmbuf_free_bulk(frames + taken, count - taken);
    return taken;
}
