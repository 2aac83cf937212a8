//! Tests of the HTML report in a headless Chromium, in light and dark mode and on a narrow screen.
//!
//! They need Debian's `chromium-headless-shell` and are not part of `cargo verify`: `.ci/run browser` installs the browser and
//! runs them.
#![expect(
    clippy::unwrap_used,
    reason = "a test target: what cannot be done fails"
)]

use chromiumoxide::Page;
use chromiumoxide::browser::{Browser, BrowserConfig};
use chromiumoxide::cdp::browser_protocol::emulation::{
    MediaFeature, SetDeviceMetricsOverrideParams, SetEmulatedMediaParams,
};
use conformance::{Report, readable};
use futures::StreamExt as _;
use serde_json::{Value, json};

/// Returns a report with all elements of a page. Texts of clusters are hostile and long.
fn report() -> Report {
    let pod = |image: &str| {
        readable(&json!({ "spec": { "containers": [{ "name": HOSTILE, "image": image }] } }))
    };
    let pods = |workload: &str, stored: &str| {
        json!({
            "cluster": "skr", "workload": workload, "kind": "Deployment",
            "template": pod("a.test/app:1"), "pod": pod(stored),
        })
    };
    let webhook = format!("registry.test/{}/webhook:1", "path/".repeat(40));
    let report = json!({
        "scenario": "everything", "description": HOSTILE, "started": "2026-01-02T03:04:05Z", "seconds": 1.5, "version": "1.0.0",
        "clusters": [{ "name": "skr", "kubernetes": "v1.36.3", "webhook": webhook }],
        "checks": [
            {
                "cluster": "skr", "title": "Pods of a come out as expected", "family": "contract", "at": 1.0,
                "outcome": "passed",
            },
            {
                "cluster": "skr", "title": "Pods of b come out as expected", "family": "contract", "at": 1.0,
                "outcome": "failed", "expected": "image a.test/app:1", "found": format!("{HOSTILE} {}", "long/".repeat(200)),
                "location": "skr: Pod app", "cause": "the webhook was not reached", "next": "kubectl get pods",
            },
            {
                "cluster": "skr", "title": "Pods of c come out as expected", "family": "contract", "at": 1.0,
                "outcome": "notRun", "reason": "the document differs",
            },
        ],
        "pods": [pods("changed", "b.test/app:1"), pods("unchanged", "a.test/app:1")],
        "timeline": [{ "time": "2026-01-02T03:04:05Z", "cluster": "kcp", "what": "Runtime is created" }],
    });
    serde_json::from_value(report).unwrap()
}

#[tokio::test]
async fn page_is_legible_and_loads_nothing() {
    let folder = tempfile::tempdir().unwrap();
    report().write(folder.path()).unwrap();
    let config = BrowserConfig::builder()
        .chrome_executable("/usr/bin/chromium-headless-shell")
        .no_sandbox()
        .user_data_dir(folder.path().join("profile"))
        .build()
        .unwrap();
    let (mut browser, mut events) = Browser::launch(config).await.unwrap();
    let driver = tokio::spawn(async move { while events.next().await.is_some() {} });
    let page = browser.new_page("about:blank").await.unwrap();
    let url = format!("file://{}", folder.path().join("report.html").display());
    let mut backgrounds = Vec::new();
    for (scheme, width) in [
        ("light", 1100),
        ("dark", 1100),
        ("light", 390),
        ("dark", 390),
    ] {
        show(&page, scheme, width).await;
        page.goto(url.as_str()).await.unwrap();
        let seen: Value = page.evaluate(LOOK).await.unwrap().into_value().unwrap();
        assert_eq!(seen["scheme"], scheme);
        assert_eq!(seen["loaded"], json!([]), "{scheme}");
        assert_eq!(seen["scripts"], 0, "{scheme}");
        assert_eq!(
            seen["title"], "Conformance: everything",
            "a script of a cluster ran"
        );
        assert_eq!(seen["open"], json!(["skr: Deployment changed"]), "{scheme}");
        assert!(seen["texts"].as_u64().unwrap() > 30, "{seen}");
        assert_eq!(seen["pale"], json!([]), "{scheme}: text without contrast");
        assert_eq!(
            seen["wide"], 0,
            "{scheme}, {width} px: wider than the screen"
        );
        assert_eq!(seen["unseen"], json!([]), "{scheme}, {width} px: no area");
        let text = seen["text"].as_str().unwrap();
        let versions = ["v1.36.3", "checked by version 1.0.0", "/webhook:1"];
        let timeline = ["Timeline of KCP", "2026-01-02T03:04:05Z Runtime is created"];
        for part in versions.iter().chain(&timeline).chain(&[HOSTILE]) {
            assert!(text.contains(part), "{scheme}: {part}");
        }
        backgrounds.push(seen["background"].clone());
    }
    assert_ne!(
        backgrounds[0], backgrounds[1],
        "light and dark are the same"
    );
    browser.close().await.unwrap();
    browser.wait().await.unwrap();
    driver.await.unwrap();
}

async fn show(page: &Page, scheme: &str, width: i64) {
    let feature = MediaFeature::new("prefers-color-scheme", scheme);
    let media = SetEmulatedMediaParams::builder().feature(feature).build();
    page.execute(media).await.unwrap();
    let screen = SetDeviceMetricsOverrideParams::new(width, 900, 1.0, false);
    page.execute(screen).await.unwrap();
}

const HOSTILE: &str = "<script>document.title = 'ran'</script><img src='https://a.test/x.png'>";
/// Script that returns visible properties of the page. The contrast of a text to its background is that of WCAG 2, of which
/// level AA requires 4.5.
const LOOK: &str = r"(() => {
  const channels = (color) => color.match(/[\d.]+/g).map(Number);
  const luminance = (color) => {
    const [r, g, b] = channels(color).slice(0, 3).map((it) => it / 255)
      .map((it) => it <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const background = (element) => {
    for (let it = element; it; it = it.parentElement) {
      const color = getComputedStyle(it).backgroundColor, parts = channels(color);
      if (parts.length === 3 || parts[3] === 1) return color;
    }
    return 'rgb(255, 255, 255)';
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), pale = [];
  let count = 0;
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    if (!node.data.trim()) continue;
    count += 1;
    const own = node.parentElement;
    const pair = [getComputedStyle(own).color, background(own)].map(luminance).sort((a, b) => b - a);
    if ((pair[0] + 0.05) / (pair[1] + 0.05) < 4.5) pale.push(node.data.trim().slice(0, 40));
  }
  const unseen = ['#clusters', '#checks-skr', '#pods', '#timeline', '.counts', 'time', '.added', '.removed']
    .filter((it) => !document.querySelector(it)?.getClientRects().length);
  const open = [...document.querySelectorAll('details[open] summary')].map((it) => it.textContent.trim());
  return {
    scheme: matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light',
    loaded: performance.getEntriesByType('resource').map((it) => it.name),
    scripts: document.scripts.length, title: document.title, open, texts: count, pale, unseen,
    wide: Math.max(0, document.documentElement.scrollWidth - innerWidth),
    background: getComputedStyle(document.body).backgroundColor, text: document.body.textContent,
  };
})()";
