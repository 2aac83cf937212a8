//! Direct mode as a whole, against a control plane in process and runtimes over TLS on this machine.

mod changes;
mod clusters;
mod kcp;
mod leaving;
mod rollouts;
mod settling;
mod skr;
mod succession;
mod trouble;
mod world;
