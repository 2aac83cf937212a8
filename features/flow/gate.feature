Feature: A Runtime is not Ready while its webhook does not answer
  A Kyma is created only when Pods of its modules are mutated.

  @serial
  Scenario: KIM does not report a Runtime Ready while the Deployment of the webhook is not available
    Given KIM installs the webhook with image "localhost/never:1"
    When KEB provisions Runtime "one" in mode signal with module "pause"
    Then Runtime "one" has condition RuntimeBootstrapperReady=False with reason "RuntimeBootstrapperInstallationInProgress"
    And field status.state of Runtime "one" is "Pending"
    And Kyma "kcp-system/one" does not exist

  @serial
  Scenario: KIM does not report a Runtime Ready while a source is absent
    Given Secret "kcp-system/registry-credentials" is deleted
    When KEB provisions Runtime "one" in mode signal with module "pause"
    Then Runtime "one" has condition RuntimeBootstrapperReady=False with reason "RuntimeBootstrapperConfigurationFailed"
    And field status.state of Runtime "one" is "Pending"
    And Kyma "kcp-system/one" does not exist

  @serial
  Scenario: KEB does not create a Kyma in mode direct while the RuntimeBootstrapper is not Ready
    Given ConfigMap "kcp-system/rt-bootstrapper-config" is patched with:
      """
      data: {rt-bootstrapper-config.json: "{"}
      """
    When KEB provisions Runtime "one" in mode direct with module "pause"
    Then field status.state of Runtime "one" is "Ready"
    And RuntimeBootstrapper "one" has condition Ready=False
    And Kyma "kcp-system/one" does not exist
