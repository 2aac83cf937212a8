Feature: A cluster that cannot serve trust bundles
  On a cluster without their API a Pod that mounts one would never start; it runs without, and its owner learns why.

  # Where the registry is private, the product's own images come from it too.
  @own-cluster @node
  Scenario: Everything is asked for, and all but the trust bundle is done
    Given a cluster without the API for trust bundles, whose node pulled the product from the private registry
    And a namespace that asks for everything
    When a plain Pod is created
    Then the owner is warned that "serves no ClusterTrustBundles"
    And trust bundle is not applied
    And FIPS mode is applied
    And it runs
