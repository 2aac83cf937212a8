//! Runs every golden case of the webhook with the fallback policy, which a real API server evaluates.
//!
//! Each case has its own Namespace, policy and binding, and its Pod is created with a dry run. The policy must change the Pod
//! in the same way as the webhook changes the Pod that the API server stores. After the policy, the webhook must not change the
//! Pod. Exceptions are listed in docs/webhook.md.

#![cfg(test)]

#[expect(dead_code, reason = "the golden tests compare more of the same files")]
#[path = "../../../src/policy/admission/tests/case.rs"]
mod case;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use api::names;
use clusters::cluster::{Cluster, ClusterOptions};
use clusters::run::Run;
use clusters::setup::Setup;
use clusters::workspace;
use futures::StreamExt as _;
use policy::{admission, image};
use serde_json::{Value, json};
use testkit::client::{Client, Write};
use testkit::until::until;

use admission::{
    Annotations, Configuration, Context, Namespace, PullSecret, fallback_spec, review,
};
use case::{Given, decide_on};

/// Namespace without a policy, in which Pods show the changes of the API server itself.
const BARE: &str = "bare";

/// Label of every Pod for which the API server evaluated a policy of this test completely. Otherwise an unchanged Pod and a
/// skipped policy could not be distinguished.
const EVALUATED: &str = "evaluated";

/// Golden cases whose objects every API server rejects as a Pod.
const NO_PODS: [&str; 4] = [
    "opt-in-not-a-text",
    "registry-image-volume",
    "registry-no-containers",
    "registry-no-reference",
];

/// Heading of the section of docs/webhook.md with the list that this test checks.
const HEADING: &str = "### What the policy leaves to the webhook\n";

const HOSTS: usize = 700;

const REGISTRIES: usize = 50;

const CONTAINERS: usize = 100;

const PRODUCT: &str = "product";

const WITHIN: Duration = Duration::from_secs(90);

/// First minor version of Kubernetes 1 that serves the policies without further settings, and in version v1 of the API.
const SERVED_SINCE: u32 = 36;

/// A golden case with the name of its file, or a case of this test.
struct Case {
    name: String,
    golden: case::Case,
}

/// Result of a case.
#[derive(Debug, PartialEq)]
enum Outcome {
    Same,
    /// The API server rejects the Pod even without a policy.
    Refused(String),
    /// The results of the webhook and the policy are different.
    Different(String),
}

impl Case {
    fn all() -> Vec<Self> {
        let folder = workspace::root().join("src/policy/admission/tests/golden");
        let files = std::fs::read_dir(folder).unwrap().map(|it| it.unwrap());
        let mut files: Vec<_> = files.map(|it| it.path()).collect();
        files.sort();
        let case = |path: &std::path::PathBuf| Self {
            name: path.file_stem().unwrap().to_string_lossy().into_owned(),
            golden: serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap(),
        };
        files.iter().map(case).collect()
    }

    /// Returns a case of this test, which has no expected result.
    fn new(name: &str, mut golden: Value) -> Self {
        golden["shows"] = json!("");
        golden["because"] = json!([]);
        let golden = serde_json::from_value(golden).unwrap();
        let name = name.to_owned();
        Self { name, golden }
    }

    /// Returns a case for the namespace in which the webhook itself runs.
    fn product() -> Self {
        let key = api::Feature::FipsMode.key();
        let golden = json!({
            "config": {"overrides": {}, "availableFeatures": [key]},
            "given": {"namespaceAnnotations": {key: "true"}},
            "object": {"spec": {"containers": [{"name": "a", "image": "a"}]}},
        });
        Self::new(PRODUCT, golden)
    }

    /// Returns a case with a document of the largest supported size, and a Pod with many containers.
    fn largest() -> Self {
        let hosts = (0..HOSTS).map(|number| {
            let host = format!("registry-{number}.europe.example.com");
            (host, json!(format!("mirror.example.com/cache/{number}")))
        });
        let hosts: serde_json::Map<_, _> = hosts.collect();
        let containers = (0..CONTAINERS).map(|number| {
            let env = (0..10).map(|it| json!({"name": format!("VARIABLE_{it}"), "value": "x"}));
            json!({
                "name": format!("c{number}"), "env": env.collect::<Vec<_>>(),
                "image": format!("registry-{number}.europe.example.com/team/of/a/long/path/to/a/service-with-a-long-name:1.2.{number}"),
                "volumeMounts": [{"name": "d", "mountPath": "/data"}, {"name": "d", "mountPath": "/var"}],
            })
        });
        let auths = (0..REGISTRIES).map(|it| format!("registry-{it}.*.example.org"));
        let golden = json!({
            "config": {
                "overrides": hosts, "availableFeatures": api::Feature::ALL.map(api::Feature::key),
                "fipsVariables": ["A", "B", "C"],
                "clusterTrustBundle": {
                    "name": "bundle", "certWritePath": "ca.pem", "volumeMountPath": "/etc/ssl/certs", "volumeName": "v",
                },
            },
            "given": {"auths": auths.collect::<Vec<_>>(), "landscape": "example"},
            "object": {
                "metadata": {"annotations": {api::ALL_KEY: "true"}},
                "spec": {"containers": containers.collect::<Vec<_>>(), "volumes": [{"name": "d", "emptyDir": {}}]},
            },
        });
        Self::new("largest", golden)
    }

    fn is_creation(&self) -> bool {
        self.golden.given.operation == "CREATE"
    }

    fn namespace(&self) -> String {
        format!("golden-{}", self.name)
    }

    /// Returns the configuration, with this case's Namespace instead of the usual one.
    fn configuration(&self) -> Configuration {
        let mut document = self.golden.config.clone();
        if let Some(namespaces) = document["namespaceFeatures"].as_object_mut()
            && let Some(features) = namespaces.remove("shop")
        {
            namespaces.insert(self.namespace(), features);
        }
        case::configuration(&document, self.golden.given.landscape.as_deref())
    }

    /// Returns the namespace of the pull Secret. An invalid Secret is invalid for Pods of its own namespace only.
    fn product_namespace(&self) -> String {
        let is_invalid = self.golden.given.pull_secret() == PullSecret::Invalid;
        if self.name == PRODUCT || is_invalid {
            self.namespace()
        } else {
            names::SKR_NAMESPACE.to_owned()
        }
    }

    /// Returns the policy and its binding, for this case's Namespace only. A policy that fails rejects the Pod with a reason.
    fn policy(&self) -> [Value; 2] {
        let policy = fallback_spec(
            &self.configuration(),
            &self.golden.given.pull_secret(),
            self.golden.given.trust_bundle(),
            &self.product_namespace(),
        );
        let without = json!({
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]},
            ]},
            "reinvocationPolicy": "IfNeeded", "mutations": [],
        });
        let policy = policy.unwrap();
        let mut spec = policy.map_or(without, |it| it.spec);
        spec["failurePolicy"] = json!("Fail");
        let mark = format!(
            "[JSONPatch{{op: \"add\", path: \"/metadata/labels\", value: {{\"{EVALUATED}\": \"true\"}}}}]"
        );
        let mark = json!({"patchType": "JSONPatch", "jsonPatch": {"expression": mark}});
        spec["mutations"].as_array_mut().unwrap().push(mark);
        let name = self.namespace();
        let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": name}});
        let binding =
            json!({"policyName": name, "matchResources": {"namespaceSelector": selector}});
        [
            object("MutatingAdmissionPolicy", &name, &spec),
            object("MutatingAdmissionPolicyBinding", &name, &binding),
        ]
    }

    fn pod(&self, namespace: &str) -> Value {
        let mut pod = self.golden.object.clone();
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod["metadata"]["name"] = json!("golden");
        pod["metadata"]["namespace"] = json!(namespace);
        pod["spec"]["automountServiceAccountToken"] = json!(false);
        pod
    }

    async fn outcome(&self, client: &Client) -> anyhow::Result<Outcome> {
        let bare = client.write(Write::DryRun, &self.pod(BARE)).await?;
        if [400, 422].contains(&bare.status.as_u16()) {
            return Ok(Outcome::Refused(bare.message()));
        }
        let bare = bare.good_for("without a policy")?.object;
        let expected = self.reviewed(&bare);
        let namespace = self.namespace();
        until("the policy is active", WITHIN, async || {
            let pod = create(client, &plain(&namespace)).await?;
            ensure!(is_evaluated(&pod), "not evaluated");
            anyhow::Ok(())
        })
        .await?;
        let mut adapted = create(client, &self.pod(&namespace)).await?;
        // A skipped policy must not be treated as one that changes nothing.
        let is_mirror = !bare["metadata"]["annotations"][names::MIRROR_POD].is_null();
        ensure!(is_evaluated(&adapted) != is_mirror, "not evaluated");
        let metadata = adapted["metadata"].as_object_mut().unwrap();
        metadata.remove("labels");
        let again = self.reviewed(&adapted);
        if again != adapted {
            return Ok(Outcome::Different(difference(&adapted, &again)));
        }
        let (spec, expected) = (&adapted["spec"], &expected["spec"]);
        Ok(if spec == expected {
            Outcome::Same
        } else {
            Outcome::Different(difference(expected, spec))
        })
    }

    /// Returns the Pod after the webhook.
    fn reviewed(&self, pod: &Value) -> Value {
        let (given, configuration) = (&self.golden.given, self.configuration());
        let annotations = given.namespace_annotations.iter().flatten();
        let annotations = annotations.map(|(key, value)| (key.as_str(), value.as_str()));
        let namespace = Namespace {
            annotations: Annotations::collect(annotations),
            labels: given.namespace_labels.clone(),
        };
        let context = Context {
            configuration: &configuration,
            namespace: Some(&namespace),
            pull_secret: &given.pull_secret(),
            trust_bundle: given.trust_bundle(),
            fallback_policy: false,
        };
        let body = review::of_created_pod(&self.namespace(), &pod.to_string());
        decide_on(&body, &context, pod).pod
    }
}

#[tokio::test]
async fn golden_cases_through_the_policy() {
    let setup = Setup::load().unwrap();
    let run = Run::begin(false).await.unwrap();
    let options = ClusterOptions::new("policy").without_node();
    let cluster = Cluster::start(&run, &setup.provider, &options).await;
    let cluster = cluster.unwrap();
    let outcomes = outcomes(&Client::new(cluster.client())).await;
    cluster.stop().await.unwrap();
    run.end().await.unwrap();

    let outcomes = match outcomes.unwrap() {
        Ok(outcomes) => outcomes,
        Err(TooOld(minor)) => {
            let line =
                format!("not checked: Kubernetes 1.{minor} serves no MutatingAdmissionPolicies\n");
            // The macros for this print nothing if the test passes.
            std::io::stderr().write_all(line.as_bytes()).unwrap();
            return;
        }
    };
    let of = |is: fn(&Outcome) -> bool| outcomes.iter().filter(move |it| is(&it.1));
    let refused = of(|it| matches!(it, Outcome::Refused(_)));
    let refused: Vec<&str> = refused.map(|(case, _)| &*case.name).collect();
    assert_eq!(refused, NO_PODS, "{}", report(&outcomes));
    let same = of(|it| *it == Outcome::Same).count();
    assert!(same >= 75, "only {same} cases are compared");
    let different = of(|it| matches!(it, Outcome::Different(_)));
    let different = different.map(|(case, _)| format!("- {}", case.golden.shows));
    let updates = Case::all().into_iter();
    let updates = updates.filter(|it| !it.is_creation() && it.golden.gives.is_some());
    let updates = updates.map(|it| format!("- {}: {}", it.golden.given.operation, it.golden.shows));
    let left: BTreeSet<String> = different.chain(updates).collect();
    assert_eq!(left, documented(), "{}", report(&outcomes));
}

fn report(outcomes: &[(Case, Outcome)]) -> String {
    let outcomes = outcomes.iter().filter(|it| it.1 != Outcome::Same);
    let lines = outcomes.map(|(case, outcome)| format!("{}: {outcome:?}\n", case.name));
    lines.collect()
}

/// Returns the list in the documentation.
fn documented() -> BTreeSet<String> {
    let text = std::fs::read_to_string(workspace::root().join("docs/webhook.md")).unwrap();
    let (_, section) = text.split_once(HEADING).expect("the section");
    let lines = section.lines().skip_while(|it| !it.starts_with("- "));
    let list = lines.take_while(|it| it.starts_with("- "));
    list.map(str::to_owned).collect()
}

/// The minor version of Kubernetes, which is known not to serve the policies.
struct TooOld(u32);

/// Returns the result of each case, unless the version of Kubernetes is too old for the policies.
async fn outcomes(client: &Client) -> anyhow::Result<Result<Vec<(Case, Outcome)>, TooOld>> {
    let version = client.inner().apiserver_version().await?;
    let minor: u32 = version.minor.trim_end_matches('+').parse()?;
    if minor < SERVED_SINCE {
        return Ok(Err(TooOld(minor)));
    }
    let cases = Case::all().into_iter().filter(Case::is_creation);
    let cases: Vec<Case> = cases.chain([Case::largest(), Case::product()]).collect();
    let bare = namespace(BARE, &Given::default());
    client.apply("test", &bare).await?;
    for case in &cases {
        let namespace = namespace(&case.namespace(), &case.golden.given);
        client.apply("test", &namespace).await?;
        for object in case.policy() {
            let applied = client.apply("test", &object).await;
            applied.with_context(|| case.name.clone())?;
        }
    }
    // The default ServiceAccount is created after its Namespace.
    let pod = plain(BARE);
    until("Pods can be created", WITHIN, || create(client, &pod)).await?;
    let outcomes = futures::stream::iter(cases).map(async |case| {
        let outcome = case.outcome(client).await;
        let outcome = outcome.with_context(|| case.name.clone())?;
        Ok((case, outcome))
    });
    let outcomes: Vec<anyhow::Result<_>> = outcomes.buffered(8).collect().await;
    own_pods(client).await?;
    let outcomes: anyhow::Result<_> = outcomes.into_iter().collect();
    outcomes.map(Ok)
}

/// Checks that the policy does not change the webhook's own Pods and its probe, and that the probe of the policy returns its
/// revision. The policy of the product namespace is active.
async fn own_pods(client: &Client) -> anyhow::Result<()> {
    let own = json!({(names::OWN_LABEL.0): names::OWN_LABEL.1});
    for (name, labels, is_adapted, is_marked) in [
        ("web", json!({}), true, false),
        ("web", own.clone(), false, false),
        (names::PROBE_POD, json!({}), false, false),
        (names::POLICY_PROBE_POD, own, true, true),
    ] {
        let case = Case::product();
        let mut pod = case.pod(&case.namespace());
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["labels"] = labels;
        pod["metadata"]["annotations"] = json!({"a.test/b": "c"});
        let created = create(client, &pod).await?;
        let variable = &created["spec"]["containers"][0]["env"][0]["name"];
        let revision = &created["metadata"]["annotations"][names::POLICY_REVISION];
        let found = (*variable == names::FIPS_VARIABLE, revision.is_string());
        let (expected, metadata) = ((is_adapted, is_marked), &created["metadata"]);
        ensure!(found == expected, "{name}: {found:?}: {metadata}");
    }
    Ok(())
}

fn plain(namespace: &str) -> Value {
    let spec =
        json!({"containers": [{"name": "a", "image": "a"}], "automountServiceAccountToken": false});
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain", "namespace": namespace}, "spec": spec,
    })
}

fn is_evaluated(pod: &Value) -> bool {
    pod["metadata"]["labels"][EVALUATED] == "true"
}

fn namespace(name: &str, given: &Given) -> Value {
    let metadata = json!({
        "name": name, "annotations": given.namespace_annotations, "labels": given.namespace_labels,
    });
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    let version = "admissionregistration.k8s.io/v1";
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// Creates a Pod with a dry run and returns it as it would be stored.
async fn create(client: &Client, pod: &Value) -> anyhow::Result<Value> {
    Ok(client.write(Write::DryRun, pod).await?.good()?.object)
}

fn difference(expected: &Value, found: &Value) -> String {
    format!("{}", json_patch::diff(expected, found))
}
