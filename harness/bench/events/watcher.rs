//! The product's watcher as a process, and the reviews that it receives.

use std::fmt::Display;
use std::net::SocketAddr;

use serde_json::Value;

use super::kcp::{Kcp, MANAGER};
use crate::environment::Bench;
use crate::load::{Client, Exchange, GIVE_UP, PLACEHOLDER, Requests, Target, post};
use crate::process::{Process, Program};

pub(super) struct Watcher<'a> {
    pub(super) program: Program<'a>,
    kcp: SocketAddr,
    pub(super) target: Target,
}

impl<'a> Watcher<'a> {
    /// Prepares a watcher with a new certificate, whose common name is the runtime, and an empty spool.
    pub(super) fn new(bench: &'a Bench, kcp: &Kcp, name: &'static str) -> anyhow::Result<Self> {
        let program = Program::with_certificate(bench, name, &kcp.authority, None)?;
        std::fs::create_dir(program.file(SPOOL))?;
        Ok(Self {
            target: Target::tls(program.address, kcp.authority.roots(), None)?,
            kcp: kcp.gateway.address,
            program,
        })
    }

    pub(super) fn start(&self, mode: &str) -> anyhow::Result<Process> {
        let program = &self.program;
        program.start(vec![
            "watcher".to_owned(),
            format!("--ca-cert={}", program.file("ca.crt")),
            format!("--tls-cert={}", program.file("tls.crt")),
            format!("--tls-key={}", program.file("tls.key")),
            format!("--kcp-addr={}", self.kcp),
            "--kcp-contract=v2".to_owned(),
            format!("--managers={MANAGER}"),
            format!("--spool-dir={}", program.file(SPOOL)),
            format!("--webhook-port={}", program.address.port()),
            format!("--metrics-port={}", program.metrics.port()),
            format!("--delivery-mode={mode}"),
        ])
    }

    pub(super) async fn start_ready(&self, mode: &str) -> anyhow::Result<Process> {
        let mut process = self.start(mode)?;
        self.program.ready(&mut process).await?;
        Ok(process)
    }

    pub(super) fn spool_bytes(&self) -> anyhow::Result<u64> {
        let segments = std::fs::read_dir(self.program.file(SPOOL))?;
        // Another thread of the watcher may remove a segment meanwhile.
        let segments = segments.filter_map(|it| it.ok()?.metadata().ok());
        Ok(segments.map(|it| it.len()).sum())
    }
}

/// Reviews of changed objects, about 5 kB each. The name in an event is from `object.metadata`.
#[derive(Clone)]
pub(super) struct Reviews {
    /// Prefix of the names of all objects; a number follows.
    pub(super) prefix: String,
    /// Number of objects: request N is about object N modulo this number.
    objects: u32,
}

impl Reviews {
    pub(super) fn new(prefix: impl Display, objects: u32) -> Self {
        let prefix = format!("{prefix}-");
        Self { prefix, objects }
    }

    pub(super) fn distinct(prefix: impl Display) -> Self {
        Self::new(prefix, u32::MAX)
    }

    pub(super) fn object(&self, number: u32) -> String {
        format!("{}{:012}", self.prefix, number % self.objects)
    }

    pub(super) fn requests(&self) -> anyhow::Result<Requests> {
        let review: Value = serde_json::from_str(include_str!("review.json"))?;
        let name = format!("{}{PLACEHOLDER}", self.prefix);
        let path = format!("/validate/{MANAGER}?timeout={}s", GIVE_UP.as_secs());
        let request = post(&path, "", &review.to_string().replace("OBJECT", &name));
        let (objects, numbered) = (self.objects, Requests::numbered(request, ALLOWED));
        let make = move |number| (numbered.make)(number % objects);
        Ok(Requests::new(make, ALLOWED))
    }

    pub(super) async fn client(&self, target: &Target) -> anyhow::Result<Client> {
        Client::connect(target, self.requests()?).await
    }

    pub(super) async fn run(
        &self,
        target: &Target,
        count: u32,
        rate: u32,
    ) -> anyhow::Result<Vec<Exchange>> {
        self.client(target).await?.run(0..count, rate).await
    }
}

const ALLOWED: &str = "\"allowed\":true";
pub(super) const SPOOL: &str = "spool";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn review_names_its_object_in_the_metadata_of_the_new_object_only() {
        let reviews = Reviews::new("a", 10);
        let request = (reviews.requests().unwrap().make)(12);
        assert_eq!(reviews.object(12), "a-000000000002");
        assert_eq!(request.matches("a-000000000002").count(), 1, "{request}");
        let body = request.split("\r\n\r\n").nth(1).unwrap();
        let review: Value = serde_json::from_str(body).unwrap();
        assert_eq!(
            review["request"]["object"]["metadata"]["name"],
            "a-000000000002"
        );
    }
}
