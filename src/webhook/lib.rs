//! The HTTP edge of admission, what it knows of its cluster, and the repairs that go with it.
//!
//! Invariant: a review is answered from snapshots alone. Nothing on its path awaits an API call, takes a lock or logs a
//! body. Deliberately absent: every decision about a Pod (`policy::admission`), and the process around it (`chassis`).

pub mod admission;
pub mod certificate;
pub mod knowledge;
pub mod repairs;
pub mod self_review;
pub mod watches;
