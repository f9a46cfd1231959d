// Package source holds the declarative source objects: what they are, how
// documents of them are read, checked and written, and how one of them is
// brought up to date with its origin.
//
// # Objects
//
// An [Object] is a declared interest in content that lives elsewhere. There
// are seven kinds: [GitRepository], [Bucket], [OCIRepository], [PkgRepository],
// [PkgChart], [ExternalArtifact] and [ArtifactGenerator]. Each has a header, a spec, which says
// what is wanted, and a status, which says what was observed. The common
// interface of the specification is [Source].
//
// One set of Go types serves both versions of the API. A table says which
// field exists in which version; documents that break it are refused. Fields
// of the group [ReferenceGroup], its later additions among them, are those of
// the group [Group]; only the names of kinds differ: PkgChart is HelmChart and
// PkgRepository is HelmRepository there. [Convert] goes from any version and
// group to any other. ArtifactGenerator is in [GeneratorGroup] alone.
//
// Deprecated fields (accessFrom, gitImplementation, valuesFile, checksum,
// contentConfigChecksum) are read and warned about, carried over to what
// replaced them where there is something, and never written.
//
// # Documents
//
// [Set.Decode] reads YAML and JSON, many documents in a stream, lists of
// objects included. It is as strict as an API server: names of fields are
// case-sensitive, unknown and duplicate fields are defects, nothing is
// converted from one type to another. A word that YAML 1.1 takes for a boolean
// (yes, on, n …) is no string unless it is in quotes. Every defect is a
// [DocumentError] that names the file, the line, the object, the field and the
// rule; all of them are reported, up to 100 of an object, and an object without
// defects is not held up by one with.
//
// What comes out has the defaults of an API server ([Default]) and keeps its
// admission rules ([Validate]). What [EncodeYAML] and [EncodeJSON] write reads
// back as an equal object.
//
// Limits: a stream has at most [MaxStream] bytes, a document [MaxDocument]; it
// nests at most 200 levels deep and holds at most 524288 values, where those
// that an alias repeats are counted each time.
//
// # Secrets
//
// Credentials are found by name through [Secrets]: in documents (a [Set] is a
// Secrets), in a directory of files ([DirSecrets]), in environment variables
// ([EnvSecrets]), or in several of these ([Chain]). No error repeats a value.
//
// # Reconciliation
//
// An [Origin] knows where content comes from: it resolves the revision that
// the origin is at, opens its content, verifies it and writes it as an
// artifact. The [Reconciler] drives every kind through these steps and is the
// only writer of status. Saved comes before announced, and announced before
// pruned; a failure leaves the last good artifact published.
//
// The package reads no environment, keeps no global state and does not log.
package source
