Feature: Every review is allowed, and KCP is told of what matters
  A watcher must cost users nothing; what it is silent about, it says why.

  Scenario Outline: <operation> with <change>
    When the watcher reviews a <operation> with <change>
    Then it is allowed with "<message>"
    And lifecycle-manager <hears> of it

    # "event queued" is completed by "for KCP", or by "in memory only" where the disk takes longer than 2 ms.
    Examples: Something was made or is gone
      | operation | change           | message               | hears |
      | CREATE    | no change        | event queued          | hears |
      | CREATE    | a changed spec   | event queued          | hears |
      | CREATE    | a changed status | event queued          | hears |
      | CREATE    | no spec          | event queued          | hears |
      | DELETE    | no change        | event queued          | hears |
      | DELETE    | a changed spec   | event queued          | hears |
      | DELETE    | a changed status | event queued          | hears |
      | DELETE    | no spec          | event queued          | hears |

    Examples: Something is different
      | operation | change           | message                                  | hears         |
      | UPDATE    | no change        | no change detected on watched resource … | does not hear |
      | UPDATE    | a changed spec   | event queued                             | hears         |
      | UPDATE    | a changed status | event queued                             | hears         |
      | UPDATE    | no spec          | event queued                             | hears         |

    Examples: Nothing can be
      | operation | change           | message                                                                         | hears         |
      | CONNECT   | no change        | operation CONNECT not supported for operator.kyma-project.io/v1beta2, Kind=Kyma | does not hear |
      | CONNECT   | a changed spec   | operation CONNECT not supported for operator.kyma-project.io/v1beta2, Kind=Kyma | does not hear |
      | CONNECT   | a changed status | operation CONNECT not supported for operator.kyma-project.io/v1beta2, Kind=Kyma | does not hear |
      | CONNECT   | no spec          | operation CONNECT not supported for operator.kyma-project.io/v1beta2, Kind=Kyma | does not hear |
