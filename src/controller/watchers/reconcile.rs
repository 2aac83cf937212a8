//! One reconcile of one Watcher.

use std::sync::Arc;

use api::watcher::{FINALIZER, Watcher};
use jiff::Timestamp;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::core::Selector;
use kube::runtime::controller::Action;
use kube::runtime::finalizer::{Error as FinalizerError, Event, finalizer};
use kube::{Api, ResourceExt as _};
use policy::watchers::{
    Gateway, Outcome, RouteAction, RouteError, action, conflict, is_owned_by, status,
    virtual_service,
};
use serde_json::json;

use super::{Context, Guarded, RESYNC};
use crate::requests::{Answer as _, deleting, posting};

/// Reconciles one Watcher.
///
/// # Errors
/// A request to KCP failed.
pub(super) async fn reconcile(
    watcher: Arc<Guarded>,
    context: Arc<Context>,
) -> kube::Result<Action> {
    let watcher = match &watcher.0 {
        Ok(watcher) => Arc::new(watcher.clone()),
        Err(invalid) => {
            context.report_unreadable(invalid).await;
            return Ok(Action::await_change());
        }
    };
    let name = watcher.name_any();
    let options = &context.options;
    let watchers: Api<Watcher> =
        Api::namespaced(options.client.clone(), &options.settings.namespace);
    let reconciled = finalizer(&watchers, FINALIZER, watcher, |event| async {
        match event {
            Event::Apply(watcher) => configure(&context, &watchers, &watcher).await,
            Event::Cleanup(watcher) => clean_up(&context, &watchers, &watcher).await,
        }
    });
    let action = reconciled.await.or_else(finalizer_error)?;
    context.succeeded(&name);
    options.metrics.reconciled("success");
    Ok(action)
}

/// Returns the cause of a failed reconcile. A Watcher that was deleted during the reconcile is not a failure.
fn finalizer_error(error: FinalizerError<kube::Error>) -> kube::Result<Action> {
    match error {
        FinalizerError::ApplyFailed(error) | FinalizerError::CleanupFailed(error) => Err(error),
        FinalizerError::AddFinalizer(error) | FinalizerError::RemoveFinalizer(error) => match error
        {
            kube::Error::Api(status) if status.is_not_found() => Ok(Action::await_change()),
            error => Err(error),
        },
        // An object from a list has a name, and the finalizer is a constant.
        FinalizerError::UnnamedObject | FinalizerError::InvalidFinalizer => {
            Ok(Action::await_change())
        }
    }
}

async fn configure(
    context: &Context,
    watchers: &Api<Watcher>,
    watcher: &Watcher,
) -> kube::Result<Action> {
    let routed = route(context, watcher).await?;
    let outcome = routed.map_or_else(Outcome::Failed, |()| configured(context, watcher));
    write_status(context, watchers, watcher, &outcome).await?;
    Ok(Action::requeue(RESYNC))
}

/// Returns the outcome if the VirtualService is as desired.
fn configured(context: &Context, watcher: &Watcher) -> Outcome {
    let all = context.watchers.state();
    let others = all.iter().filter_map(|it| it.0.as_ref().ok());
    conflict(watcher, others).map_or(Outcome::Configured, |older| {
        let namespace = older.namespace().unwrap_or_default();
        Outcome::Conflict(format!("{namespace}/{}", older.name_any()))
    })
}

/// Writes the VirtualService if it differs.
async fn route(context: &Context, watcher: &Watcher) -> kube::Result<Result<(), RouteError>> {
    let gateways = match gateways(context, watcher).await? {
        Ok(gateways) => gateways,
        Err(error) => return Ok(Err(error)),
    };
    let desired = match virtual_service(watcher, &gateways) {
        Ok(desired) => desired,
        Err(error) => return Ok(Err(error)),
    };
    let name = watcher.name_any();
    let live = context.virtual_services.get_opt(&name).await?;
    let live = live.map(|it| json!(it));
    let (verb, object) = match action(desired, live) {
        Ok(RouteAction::Keep) => return Ok(Ok(())),
        Ok(RouteAction::Create(object)) => ("create", object),
        Ok(RouteAction::Replace(object)) => ("update", object),
        Err(error) => return Ok(Err(error)),
    };
    let object: DynamicObject = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
    let parameters = posting();
    let written = if verb == "create" {
        context.virtual_services.create(&parameters, &object).await
    } else {
        context
            .virtual_services
            .replace(&name, &parameters, &object)
            .await
    };
    match written {
        Ok(_) => {
            tracing::info!(watcher = name, verb, "VirtualService written");
            context.options.metrics.wrote(verb);
            Ok(Ok(()))
        }
        Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(Err(forbidden(
            verb,
            "virtualservices",
            &context.options.settings.namespace,
        ))),
        Err(error) => Err(error),
    }
}

/// Returns the Gateways that the Watcher selects.
async fn gateways(
    context: &Context,
    watcher: &Watcher,
) -> kube::Result<Result<Vec<Gateway>, RouteError>> {
    let selector = watcher.spec.gateway.selector.clone();
    let selector = match Selector::try_from(selector) {
        Ok(selector) => selector,
        Err(error) => return Ok(Err(RouteError::SelectorInvalid(error.to_string()))),
    };
    let namespace = &context.options.settings.gateway_namespace;
    let parameters = ListParams::default().labels_from(&selector);
    match context.gateways.list(&parameters).await {
        Ok(found) if found.items.is_empty() => {
            Ok(Err(RouteError::GatewayNotFound(namespace.clone())))
        }
        Ok(found) => {
            let found = found.items.iter();
            Ok(Ok(found.map(|it| Gateway::of(&json!(it))).collect()))
        }
        Err(kube::Error::Api(status)) => match status.code {
            404 => Ok(Err(RouteError::IstioNotServed)),
            403 => Ok(Err(forbidden("list", "gateways", namespace))),
            // The API server cannot parse the selector.
            400 => Ok(Err(RouteError::SelectorInvalid(status.message.clone()))),
            _ => Err(kube::Error::Api(status)),
        },
        Err(error) => Err(error),
    }
}

fn forbidden(verb: &str, resource: &str, namespace: &str) -> RouteError {
    RouteError::Forbidden(format!("{verb} {resource} in namespace {namespace}"))
}

/// Deletes the VirtualService of a Watcher that is being deleted.
async fn clean_up(
    context: &Context,
    watchers: &Api<Watcher>,
    watcher: &Watcher,
) -> kube::Result<Action> {
    write_status(context, watchers, watcher, &Outcome::Deleting).await?;
    let name = watcher.name_any();
    let live = context.virtual_services.get_opt(&name).await;
    // Without Istio, the API server responds with a 404 that names no object.
    let live = live.unless_gone()?.flatten();
    let Some(live) = live.filter(|live| is_owned_by(watcher, &json!(live))) else {
        return Ok(Action::await_change());
    };
    let parameters = deleting(&live);
    let deleted = context.virtual_services.delete(&name, &parameters).await;
    if deleted.unless_gone()?.is_some() {
        tracing::info!(watcher = name, verb = "delete", "VirtualService written");
        context.options.metrics.wrote("delete");
    }
    Ok(Action::await_change())
}

/// Writes the status and an Event if the outcome differs from the status.
async fn write_status(
    context: &Context,
    watchers: &Api<Watcher>,
    watcher: &Watcher,
    outcome: &Outcome,
) -> kube::Result<()> {
    let now = Timestamp::now().strftime("%FT%TZ").to_string();
    let Some(after) = status(watcher, outcome, &now) else {
        return Ok(());
    };
    // With the resource version as precondition, a status that this reconcile did not read is not overwritten.
    let patch = json!({
        "metadata": { "resourceVersion": watcher.resource_version() },
        "status": after,
    });
    let name = watcher.name_any();
    let parameters = PatchParams::default();
    let patch = Patch::Merge(&patch);
    let patched = watchers.patch_status(&name, &parameters, &patch).await;
    if patched.unless_gone()?.is_some() {
        context.report(watcher, &after).await;
    }
    Ok(())
}
