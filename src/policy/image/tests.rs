//! Tables written from the grammar and the kubelet's source, and two independent parsers as judges.

mod differential;
mod keyring;
mod reference;
mod refused;
