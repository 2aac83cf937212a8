//! Tests of the clients that each verifier accepts.

use futures::FutureExt as _;
use rstest::rstest;
use testkit::pki::rcgen::{CertificateParams, DnType, SanType};

use super::super::*;
use crate::fixture::{DOMAIN, RUNTIME, ca, watcher_with};

/// Lookup with one Kyma.
struct Kyma(Result<Option<&'static str>, &'static str>);

impl SkrDomainLookup for Kyma {
    fn skr_domain<'a>(
        &'a self,
        runtime: &'a RuntimeId,
    ) -> BoxFuture<'a, Result<Option<String>, Box<dyn StdError + Send + Sync>>> {
        assert_eq!(runtime.as_str(), RUNTIME);
        let domain = self.0.map(|domain| domain.map(str::to_owned));
        future::ready(domain.map_err(Into::into)).boxed()
    }
}

fn verify(
    verifier: &impl Verifier,
    change: impl FnOnce(&mut CertificateParams),
) -> Result<RuntimeId, VerifyError> {
    let client = ClientCertificate::read(watcher_with(&ca(), change).der).unwrap();
    let identity = ClientIdentity {
        certificate: Arc::new(client),
        event: None,
    };
    verifier.verify(identity).now_or_never().unwrap()
}

#[test]
fn the_common_name_is_the_runtime_id() {
    let runtime = verify(&RuntimeIdFromCommonName, |_| {}).unwrap();
    assert_eq!(runtime.as_str(), RUNTIME);
}

#[test]
fn without_a_common_name_there_is_no_runtime() {
    let nameless = |params: &mut CertificateParams| {
        params.distinguished_name.remove(DnType::CommonName);
    };
    for result in [
        verify(&RuntimeIdFromCommonName, nameless),
        verify(&SanPinning::new(Kyma(Ok(Some(DOMAIN)))), nameless),
    ] {
        assert!(
            matches!(result, Err(VerifyError::NoRuntimeId)),
            "{result:?}"
        );
    }
}

#[rstest]
#[case::the_same(Some(DOMAIN), true)]
#[case::in_another_letter_case(Some("ONE.skr.example"), true)]
#[case::another(Some("two.skr.example"), false)]
#[case::a_parent(Some("skr.example"), false)]
#[case::empty(Some(""), false)]
#[case::no_kyma(None, false)]
fn a_certificate_is_pinned_to_the_domain_of_its_kyma(
    #[case] domain: Option<&'static str>,
    #[case] accepted: bool,
) {
    let result = verify(&SanPinning::new(Kyma(Ok(domain))), |_| {});
    match result {
        Ok(runtime) => assert!(accepted, "{runtime}"),
        Err(VerifyError::Denied(_)) => assert!(!accepted),
        Err(other) => panic!("{other:?}"),
    }
}

/// The same pair serves the webhook on the runtime, so it also has other names.
#[test]
fn one_name_of_several_is_enough() {
    let service = "skr-webhook.kyma-system.svc";
    let names = [service, DOMAIN].map(|name| SanType::DnsName(name.try_into().unwrap()));
    let change = |params: &mut CertificateParams| params.subject_alt_names = names.to_vec();
    assert!(verify(&SanPinning::new(Kyma(Ok(Some(DOMAIN)))), change).is_ok());
}

#[test]
fn the_domain_as_a_uri_is_no_dns_name() {
    let change = |params: &mut CertificateParams| {
        params.subject_alt_names = vec![SanType::URI(DOMAIN.try_into().unwrap())];
    };
    let result = verify(&SanPinning::new(Kyma(Ok(Some(DOMAIN)))), change);
    assert!(matches!(result, Err(VerifyError::Denied(_))), "{result:?}");
}

#[test]
fn a_failed_look_up_is_no_verdict() {
    let result = verify(&SanPinning::new(Kyma(Err("no connection"))), |_| {});
    assert!(
        matches!(result, Err(VerifyError::Unavailable(_))),
        "{result:?}"
    );
}

#[test]
fn closure_is_a_verifier() {
    let only = |identity: ClientIdentity| async move {
        let name = identity.certificate.common_name();
        let allowed = name.filter(|name| *name == RUNTIME && identity.event.is_none());
        let id = allowed.and_then(RuntimeId::parse);
        id.ok_or(VerifyError::Denied("not this one".into()))
    };
    assert!(verify(&only, |_| {}).is_ok());
    let other = |params: &mut CertificateParams| {
        params.distinguished_name.push(DnType::CommonName, "other");
    };
    assert!(matches!(verify(&only, other), Err(VerifyError::Denied(_))));
}
