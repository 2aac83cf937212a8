//! Tests from tables that are based on the grammar and the source of the kubelet, and from comparisons with two
//! independent parsers.

mod differential;
mod keyring;
mod reference;
mod refused;
