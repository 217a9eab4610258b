//! The documents of a release: its bill of materials, its provenance and its manifest for krew.

use anyhow::Context as _;
use serde_json::{Value, json};

/// A statically linked C library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library {
    /// Name of its Debian package.
    pub package: String,
    /// Version of the package.
    pub version: String,
}

/// A file of the release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// Name of the file.
    pub name: String,
    /// Its SHA-256, in hexadecimal.
    pub sha256: String,
}

/// The source and the tools of a build.
#[derive(Debug, Clone)]
pub struct Origin<'a> {
    /// Commit of the repository.
    pub commit: &'a str,
    /// URI of the builder. A signature of the statement confirms it.
    pub builder: &'a str,
    /// Tools with their versions, such as `rustc 1.95.0`.
    pub tools: &'a [String],
}

/// Adds the libraries to the bill of materials of the crates (`CycloneDX` JSON), in the order of
/// their names.
pub fn sbom(mut crates: Value, libraries: &[Library]) -> Value {
    let mut libraries = libraries.to_vec();
    libraries.sort_by(|one, other| one.package.cmp(&other.package));
    if let Some(components) = crates["components"].as_array_mut() {
        components.extend(libraries.iter().map(|library| {
            json!({
                "type": "library",
                "name": library.package,
                "version": library.version,
                "scope": "required",
                "purl": format!("pkg:deb/debian/{}@{}", library.package, library.version),
            })
        }));
    }
    crates
}

/// The provenance of the artifacts: an in-toto statement (v1) with the predicate of SLSA 1.0.
pub fn provenance(artifacts: &[Artifact], origin: &Origin<'_>) -> Value {
    let subjects = artifacts
        .iter()
        .map(|artifact| json!({ "name": artifact.name, "digest": { "sha256": artifact.sha256 } }));
    let source = json!({ "name": "virtlens", "digest": { "gitCommit": origin.commit } });
    let tools = origin.tools.iter().map(|tool| json!({ "name": tool }));
    let inputs: Vec<Value> = [source].into_iter().chain(tools).collect();
    json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects.collect::<Vec<Value>>(),
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:virtlens:make-dist:1",
                "externalParameters": { "commit": origin.commit },
                "resolvedDependencies": inputs,
            },
            "runDetails": { "builder": { "id": origin.builder } },
        },
    })
}

/// The manifest with which krew installs the program as a plugin of kubectl
/// (`krew.googlecontainertools.github.com/v1alpha2`, `pkg/index/types.go` of krew 0.5). The
/// archive is downloaded from the URI `downloads` and its name.
///
/// # Errors
///
/// If the release has no archive.
pub fn krew(artifacts: &[Artifact], version: &str, downloads: &str) -> anyhow::Result<Value> {
    let name = format!("virtlens-{version}-linux-amd64.tar.gz");
    let mut archives = artifacts.iter();
    let archive = archives
        .find(|one| one.name == name)
        .context(name.clone())?;
    let files = ["virtlens", "LICENSE"];
    let files =
        files.map(|file| json!({ "from": format!("virtlens-{version}/{file}"), "to": "." }));
    let platform = json!({
        "selector": { "matchLabels": { "os": "linux", "arch": "amd64" } },
        "uri": format!("{}/{name}", downloads.trim_end_matches('/')),
        "sha256": archive.sha256,
        "files": files,
        "bin": "virtlens",
    });
    Ok(json!({
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": { "name": "virtlens" },
        "spec": {
            "version": format!("v{version}"),
            "shortDescription": "Show CPU use, throttling and placement of VM pods",
            "description": "Shows CPU time by role, throttling, run delay and placement of the VMs \
                            in pods (Kata Containers, KubeVirt), live, from recordings and as \
                            findings with remedies. It asks the agents of virtlens, which the \
                            cluster needs.\n",
            "caveats": "The agents have to be installed in the cluster, by default in the \
                        namespace virtlens. The plugin forwards ports of their pods.\n",
            "platforms": [platform],
        },
    }))
}

/// Parses the output of `sha256sum`.
///
/// # Errors
///
/// If a line has another form.
pub fn artifacts(sums: &str) -> anyhow::Result<Vec<Artifact>> {
    let artifact = |line: &str| {
        let (sha256, name) = line.split_once("  ")?;
        let is_sum = sha256.len() == 64 && sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_sum.then(|| Artifact {
            name: name.to_owned(),
            sha256: sha256.to_owned(),
        })
    };
    sums.lines()
        .map(|line| artifact(line).ok_or_else(|| anyhow::anyhow!("no line of sha256sum: {line:?}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bill_of_materials_has_crates_and_libraries() {
        let crates = json!({
            "bomFormat": "CycloneDX",
            "components": [{ "name": "libc" }],
        });
        let library = |package: &str| Library {
            package: package.to_owned(),
            version: "1".to_owned(),
        };
        let bom = sbom(crates, &[library("zlib1g-dev"), library("libelf-dev")]);
        assert_eq!(bom["bomFormat"], "CycloneDX");
        let components = bom["components"].as_array().expect("a list");
        let names: Vec<&Value> = components.iter().map(|one| &one["name"]).collect();
        assert_eq!(names, ["libc", "libelf-dev", "zlib1g-dev"]);
        assert_eq!(components[1]["purl"], "pkg:deb/debian/libelf-dev@1");
    }

    #[test]
    fn provenance_names_each_artifact_and_the_commit() {
        let sum = "a".repeat(64);
        let artifacts = artifacts(&format!("{sum}  image.tar\n{sum}  chart.tgz\n"));
        let origin = Origin {
            commit: "0123",
            builder: "urn:example:builder",
            tools: &["rustc 1.95.0".to_owned()],
        };
        let statement = provenance(&artifacts.expect("lines of sha256sum"), &origin);
        assert_eq!(statement["subject"][1]["name"], "chart.tgz");
        assert_eq!(statement["subject"][0]["digest"]["sha256"], sum);
        let definition = &statement["predicate"]["buildDefinition"];
        assert_eq!(definition["externalParameters"]["commit"], "0123");
        assert_eq!(
            definition["resolvedDependencies"][1]["name"],
            "rustc 1.95.0"
        );
    }

    #[test]
    fn manifest_for_krew_has_archive_of_its_version() {
        let sum = "b".repeat(64);
        let lines = format!(
            "{0}  image.tar\n{sum}  virtlens-1.2.3-linux-amd64.tar.gz\n",
            "a".repeat(64)
        );
        let artifacts = artifacts(&lines).expect("lines of sha256sum");
        let manifest = krew(&artifacts, "1.2.3", "https://example.org/v1.2.3/");
        let spec = &manifest.expect("it has an archive")["spec"];
        assert_eq!(spec["version"], "v1.2.3");
        let platform = &spec["platforms"][0];
        let uri = "https://example.org/v1.2.3/virtlens-1.2.3-linux-amd64.tar.gz";
        assert_eq!(platform["uri"], uri);
        assert_eq!(platform["sha256"], sum);
        assert_eq!(platform["files"][0]["from"], "virtlens-1.2.3/virtlens");
        let error = krew(&artifacts, "1.2.4", "https://example.org").expect_err("another version");
        assert_eq!(error.to_string(), "virtlens-1.2.4-linux-amd64.tar.gz");
    }

    #[test]
    fn other_lines_are_no_sums() {
        for text in ["image.tar", "0123  image.tar", "sha256sum: no such file"] {
            assert!(artifacts(text).is_err(), "{text}");
        }
    }
}
