// Package source defines the declarative source objects: their types, how documents of them are
// decoded, validated and encoded, and how an object is brought up to date with its origin.
//
// # Objects
//
// An [Object] declares which external content is wanted. There are seven kinds: [GitRepository],
// [Bucket], [OCIRepository], [PkgRepository], [PkgChart], [ExternalArtifact] and
// [ArtifactGenerator]. Each has a header, a spec with the desired state and a status with the
// observed state. The common interface of the specification is [Source].
//
// One set of Go types serves both versions of the API. A table says which field exists in which
// version; documents that break it are refused. The fields in the group [ReferenceGroup], including
// its later additions, are the same as in the group [Group]. Only the names of two kinds differ:
// there PkgChart is HelmChart and PkgRepository is HelmRepository. [Convert] converts between all
// versions and groups. ArtifactGenerator exists only in [GeneratorGroup].
//
// Deprecated fields (accessFrom, gitImplementation, valuesFile, checksum, contentConfigChecksum)
// are read with a warning, copied to the fields that replaced them, if any, and never written.
//
// # Documents
//
// [Set.Decode] reads YAML and JSON: streams of many documents, including lists of objects. It is as
// strict as an API server: field names are case-sensitive, unknown and duplicate fields are
// defects, and nothing is converted from one type to another. A word that YAML 1.1 reads as a
// boolean (yes, on, n …) is a string only in quotes. Every defect is a [DocumentError] that names
// the file, the line, the object, the field and the rule. All defects are reported, up to 100 of an
// object, and a defective object does not prevent the use of the others.
//
// The objects have the defaults of an API server ([Default]) and satisfy its admission rules
// ([Validate]). The output of [EncodeYAML] and [EncodeJSON] decodes to an equal object.
//
// Limits: a stream has at most [MaxStream] bytes and a document at most [MaxDocument]. A document
// is at most 200 levels deep and has at most 524288 values; values that an alias repeats count each
// time.
//
// # Secrets
//
// Credentials are looked up by name through [Secrets]: in documents (a [Set] implements Secrets),
// in a directory of files ([DirSecrets]), in environment variables ([EnvSecrets]), or in several of
// these ([Chain]). Errors never include a value.
//
// # Reconciliation
//
// An [Origin] is where content comes from: it resolves the current revision, opens its content,
// verifies it and writes it as an artifact. The [Reconciler] drives every kind through these steps
// and is the only writer of status. It saves the status before it emits events, and emits events
// before it prunes. After a failure, the last good artifact stays published.
//
// The package reads no environment variables, keeps no global state and does not log.
package source
