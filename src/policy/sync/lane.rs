//! Lanes: sets of objects on a runtime that are planned, applied and reported independently.
//!
//! Invariant: within a reconcile lanes share only the connection, the verified identity of the cluster and the
//! ownership ConfigMap. Each lane has its own revision, rollout, backoff, missing permissions, failures and condition.

/// A set of objects on a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Lane {
    /// Pull Secret, trust bundle and configuration document.
    Configuration,
    /// The manifests of the webhook.
    Webhook,
}

/// One value for each lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lanes<T> {
    /// The value of [`Lane::Configuration`].
    pub configuration: T,
    /// The value of [`Lane::Webhook`].
    pub webhook: T,
}

impl Lane {
    /// All lanes, in the order in which a reconcile applies them: the webhook needs its configuration when it starts.
    pub const ALL: [Self; 2] = [Self::Configuration, Self::Webhook];

    /// Returns the name of the lane and of its `RuntimeBootstrapperRollout`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl<T> Lanes<T> {
    /// Creates a value for each lane.
    pub fn from_fn(mut value: impl FnMut(Lane) -> T) -> Self {
        Self {
            configuration: value(Lane::Configuration),
            webhook: value(Lane::Webhook),
        }
    }

    /// Creates the same value for every lane.
    pub fn both(value: T) -> Self
    where
        T: Clone,
    {
        Self {
            configuration: value.clone(),
            webhook: value,
        }
    }

    /// Returns the value of a lane.
    pub fn get(&self, lane: Lane) -> &T {
        match lane {
            Lane::Configuration => &self.configuration,
            Lane::Webhook => &self.webhook,
        }
    }

    /// Returns a mutable reference to the value of a lane.
    pub fn get_mut(&mut self, lane: Lane) -> &mut T {
        match lane {
            Lane::Configuration => &mut self.configuration,
            Lane::Webhook => &mut self.webhook,
        }
    }

    /// Returns the values in the order of [`Lane::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        [&self.configuration, &self.webhook].into_iter()
    }

    /// Returns references to the values.
    pub fn as_ref(&self) -> Lanes<&T> {
        Lanes {
            configuration: &self.configuration,
            webhook: &self.webhook,
        }
    }

    /// Converts the value of each lane.
    pub fn map<U>(self, mut convert: impl FnMut(T) -> U) -> Lanes<U> {
        Lanes {
            configuration: convert(self.configuration),
            webhook: convert(self.webhook),
        }
    }
}
