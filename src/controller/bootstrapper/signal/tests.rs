//! The whole signal against an API server. Source: product.md §2 "Interim mode", reference kim-keb §4 and §9 rows 1 to 9
//! and 39 to 45.

mod changes;
mod deletions;
mod failures;
pub(in crate::bootstrapper) mod kcp;
mod leader;
mod manager;
mod withheld;
mod world;
