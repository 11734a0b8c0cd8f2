//! Limits the number of netlink sockets of a container.
//!
//! The kernel queues answers to a netlink socket until they are read, and charges that memory to
//! no cgroup: with enough sockets, a container could use up the host's memory. So the seccomp
//! filter sends each attempt to create one to the agent, which creates the socket and hands it
//! over, or refuses.
//!
//! ```text
//!  socket(AF_NETLINK) ──▶ waits ──▶ broker ──▶ factory, one at a time: count, socket()
//!        ▲                            ▲   │  ▲                                 │ waits too: same filter
//!        └────── descriptor, errno ───┘   └──┴──── from the factory: continue ◀──┘
//! ```
//!
//! Simply allowing the waiting calls would not do: all concurrent ones would pass before the
//! first is counted. If the agent exits, each of them fails with `ENOSYS`.

mod broker;
mod factory;
mod limit;
mod request;

pub(crate) use broker::NetlinkBroker;
