@policy
Feature: Pods are adapted while no replica of the webhook answers
  A MutatingAdmissionPolicy has the API server itself change Pods. It is switched off by default.

  Background:
    Given Namespace "shop"
    And component webhook runs with flags "--mutating-admission-policy=on"

  @serial @cluster @slow
  Scenario: A thousand Pods are adapted while no replica answers
    Then metric "fallback_policy_active" of component webhook is at least 1
    When component webhook is stopped
    And 1000 Pods with annotation "rt-cfg.kyma-project.io/all=true" are created with dry run in Namespace "shop"
    Then every created Pod is mutated

  @serial @cluster @slow
  Scenario: The webhook has nothing to add to a Pod that the policy adapted, and says so
    Then metric "fallback_policy_active" of component webhook is at least 1
    When Pod "shop/web" is created with:
      """
      metadata: {annotations: {rt-cfg.kyma-project.io/all: "true"}}
      spec: {containers: [{name: app, image: "replace.me/app:1"}]}
      """
    Then Pod "shop/web" is mutated by "all"
    And Pod "shop/web" has no annotation "rt-bootstrapper.kyma-project.io/defaulted"
    And metric "admission_decisions_total AppliedByPolicy" of component webhook is at least 5 in one replica

  @serial @cluster @slow
  Scenario: A policy that another client deletes comes back
    Then metric "fallback_policy_active" of component webhook is at least 1
    When MutatingAdmissionPolicy "rt-bootstrapper-mutating-admission-policy" is deleted
    Then MutatingAdmissionPolicy "rt-bootstrapper-mutating-admission-policy" is eventually restored

  @serial @cluster @slow
  Scenario: The policy is deleted with the webhook configuration
    Then metric "fallback_policy_active" of component webhook is at least 1
    And MutatingAdmissionPolicy "rt-bootstrapper-mutating-admission-policy" exists
    And MutatingAdmissionPolicyBinding "rt-bootstrapper-mutating-admission-policy" exists
    When MutatingWebhookConfiguration "rt-bootstrapper-mutating-webhook-configuration" is deleted
    Then MutatingAdmissionPolicy "rt-bootstrapper-mutating-admission-policy" is deleted
    And MutatingAdmissionPolicyBinding "rt-bootstrapper-mutating-admission-policy" is deleted
