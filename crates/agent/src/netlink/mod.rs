//! Netlink sockets, of which a container may have a few at once.
//!
//! What the kernel answers to a netlink socket it holds until somebody reads it, and it
//! charges that to no cgroup: with enough sockets, a container could take all memory of its
//! host. So the filter of system calls lets nobody make one, but asks us: we make the socket
//! and hand it over, or refuse.
//!
//! ```text
//!  socket(AF_NETLINK) ──▶ waits ──▶ broker ──▶ factory, one at a time: count, socket()
//!        ▲                            ▲   │  ▲                                 │ waits too: same filter
//!        └────── descriptor, errno ───┘   └──┴──── it is the factory: go on ◀────┘
//! ```
//!
//! If the waiting calls were simply let through, all that came at once would pass before the
//! first of them is counted. And if we end, each of them fails with `ENOSYS`.

mod broker;
mod factory;
mod limit;
mod request;

pub(crate) use broker::NetlinkBroker;
