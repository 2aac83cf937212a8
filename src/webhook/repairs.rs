//! Repairs inside the cluster, done by one leader: what admission alone cannot keep true.
//!
//! Each repair is a room of its own with the same three parts in the same order: *gather* (watches, trimmed to what is
//! kept), *decide* (`policy`, pure), *apply* (few calls at a time, each safe to repeat). A repair is a value with
//! `run(self, token)`, started inside `chassis::lease::run_while_leading`, so one replica writes; it begins with
//! nothing in memory at each election and learns all from the cluster. Invariant: repairs never touch the path of a
//! review and never make a replica unready.
//!
//! Two rooms to come, beside [`pull_secret`]:
//! - restarts after a change of the trust bundle (`trust_bundle`): opted-in Pods, evicted at a pace, once per version;
//! - the finder of missed Pods (`missed`): no marker, created after the configuration that covers them.
//!
//! Both will evict and want their own watch on Pods (labels, owners, creation time); share the pacing of evictions
//! there, not the state in here: the mirror keeps two strings of a Pod, and only of those that ask for the Secret.

pub mod pull_secret;
