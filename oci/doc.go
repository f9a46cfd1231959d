// Package oci implements the origin of OCIRepository objects: artifacts and images in
// registries that implement the OCI distribution specification 1.1 (specification,
// "OCIRepository"; reference A11).
//
// # Selection
//
// spec.ref.digest takes precedence over semver, and semver over tag; the default is the
// tag latest. A semver range considers all tags whose name matches semverFilter, an
// unanchored regular expression in Go syntax. The name is the version: three numeric
// parts, with or without a leading v. If layerSelector selects the layer of a chart, _
// in the name represents +. The highest version wins. Among equal versions the later
// build metadata wins, compared like pre-releases; a version with build metadata wins
// over one without. Among tags with equal build metadata the last name in byte order
// wins: v1.0.0, not 1.0.0.
//
//	tag, semver, nothing  1.2.3@sha256:…
//	digest                sha256:…
//
// The digest is that of the manifest or index that the tag names. Verification and
// fetching use that digest, even if the tag moves meanwhile.
//
// # Requests
//
// An unchanged tag costs one HEAD request. A range costs the list of tags (one request
// per page) and one HEAD. A pinned digest that was resolved before costs nothing. A new
// revision also costs the manifest, for an index those that it leads to, and the layer.
// Digests from the registry are not trusted: manifests and blobs are checked. Requests
// for tokens, and retries at busy registries, are not included in these numbers.
// spec.timeout applies to each of these steps separately: read the Secrets of
// spec.verify, log in, list tags, look up the tag, fetch the manifest, verify, pull the
// layer, pack.
//
// # Indexes and layers
//
// Of an index, the first entry for linux/amd64 is used, of any variant. An entry
// without a platform counts as linux/amd64, so an index of a single artifact needs
// none. At most 4 indexes may be nested. The media types are those of OCI and of Docker
// schema 2.
//
// Of a manifest, the first layer is used, or the first with the media type in
// layerSelector. With operation extract, the default, the layer is a tar archive,
// uncompressed or compressed with gzip or zstd, whatever its media type says. Its
// files, except those that ignore rules exclude, become the artifact. Package artifact
// documents what is refused and what is left out, mainly links. Other layers of an
// image are not applied: their files are missing, and whiteouts (.wh. files) are plain
// files. With operation copy the layer itself is the artifact, unchanged.
//
// The layer is downloaded once. A copy is written directly to the store; if both use
// sha256, the store's checksum verifies it. An archive is decompressed to a spool file
// in [source.Env].Limits.Temp. Memory use does not depend on the size of the layer, but
// on the number of its entries, about 100 bytes plus the name for each, and on the
// window of zstd, which is 8 MiB with most encoders and at most 128 MiB.
//
// The annotations of the manifest become the metadata of the artifact: up to 64 KiB in
// total, starting with those of the OCI. A note reports omitted annotations.
//
// # Verification
//
// With spec.verify, nothing is pulled before the signatures of the digest are verified.
// The caller of [New] passes the verifiers by provider: see the packages oci/cosign and
// oci/notation. If keys, identities or roots change, the signatures are verified again.
// If a policy accepts a failed verification, the condition SourceVerified is Unknown.
//
// # Local directories
//
// If [source.Env].Local maps spec.url to a directory with an image layout, the layout
// is used as the repository, with its signatures and digests. Any other directory is
// the content itself: see [source.Dir]. It has no signatures, and no layer to copy.
//
// # Limits
//
// A manifest has at most 4 MiB and 10,000 entries, a list at most 100,000 tags; a run
// accepts tokens of at most 1 MiB in total. [source.Env].Limits applies to the layer
// and to its content: Bytes of each (default 16 GiB), FileBytes (as Bytes), Entries
// (1,000,000), NameBytes (4096) and Ratio (1000 bytes for each compressed byte). An
// error names the limit.
package oci
