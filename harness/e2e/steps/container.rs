//! What is inside a Pod: containers, their images, variables and mounts, and the Secrets they pull with.

use anyhow::{Context as _, ensure};
use cucumber::gherkin::Step;
use cucumber::then;

use crate::world::World;
use crate::world::effects::{containers, items, pull_secrets, started, variable};

#[then(expr = "its image is {string}")]
fn has_image(world: &mut World, image: String) -> anyhow::Result<()> {
    let seen = world.pod()?.at("/spec/containers/0/image");
    ensure!(*seen == image, "{seen}");
    Ok(())
}

#[then(expr = "the image that it mounts is {string}")]
fn mounted_image(world: &mut World, image: String) -> anyhow::Result<()> {
    let volumes = world.pod()?.at("/spec/volumes");
    let seen: Vec<&str> = items(volumes)
        .filter_map(|volume| volume["image"]["reference"].as_str())
        .collect();
    ensure!(seen == [image.as_str()], "{volumes}");
    Ok(())
}

#[then("its images are")]
fn images(world: &mut World, step: &Step) -> anyhow::Result<()> {
    let pod = world.pod()?;
    let seen: Vec<[&str; 2]> = containers(&pod.object)
        .map(|container| {
            [&container["name"], &container["image"]].map(|text| text.as_str().unwrap_or_default())
        })
        .collect();
    let rows = step
        .table
        .as_ref()
        .context("a table of containers and images")?
        .rows
        .iter();
    let wanted: Vec<[&str; 2]> = rows.map(|row| [row[0].as_str(), row[1].as_str()]).collect();
    ensure!(seen == wanted, "{seen:?}");
    Ok(())
}

#[then(expr = "its pull Secrets are {string}")]
fn secrets(world: &mut World, names: String) -> anyhow::Result<()> {
    let seen = pull_secrets(&world.pod()?.object).join(", ");
    ensure!(seen == names, "{seen:?}");
    Ok(())
}

#[then(expr = "each of its containers has the variable {string} with {string}")]
fn variables(world: &mut World, name: String, value: String) -> anyhow::Result<()> {
    for container in started(&world.pod()?.object) {
        ensure!(variable(container, &name) == Some(&value), "{container}");
        let count = items(&container["env"])
            .filter(|entry| entry["name"] == name)
            .count();
        ensure!(count == 1, "{count} times in {container}");
    }
    Ok(())
}

#[then(expr = "its variables are {string}")]
fn variable_names(world: &mut World, names: String) -> anyhow::Result<()> {
    let env = world.pod()?.at("/spec/containers/0/env");
    let seen: Vec<&str> = items(env)
        .filter_map(|entry| entry["name"].as_str())
        .collect();
    ensure!(seen.join(", ") == names, "{seen:?}");
    Ok(())
}
