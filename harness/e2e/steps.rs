//! The vocabulary of the features, one file a domain noun.
//!
//! Invariant: it is closed and declarative. `Given` is a state, `When` the one event, `Then` what can be seen from
//! outside. "Admitted" Pods are asked for as a dry run: they take the same way through the API server and the webhook,
//! and nothing is left of them. "Created" Pods are stored.
#![expect(
    clippy::needless_pass_by_value,
    reason = "cucumber hands captures over by value"
)]

mod bundle;
mod configuration;
mod container;
mod copy;
mod deployment;
mod effect;
mod namespace;
mod node;
mod pod;
mod replica;
mod request;
mod review;
mod rollout;
mod secret;
mod tls;
mod update;
mod webhook;
