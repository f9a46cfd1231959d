// Package oci is the origin of OCIRepository objects: artifacts and images in
// registries that speak the OCI distribution specification 1.1 (specification,
// "OCIRepository"; reference A11).
//
// # Selection
//
// spec.ref.digest comes before semver, before tag; the default is the tag
// latest. A range looks at all tags of which semverFilter, a regular expression
// in Go syntax, matches some part of the name. The name is the version: three
// numeric parts, with or without a leading v. Where layerSelector asks for the
// layer of a chart, _ in it stands for +. The highest version wins; of tags that
// mean the same, the one with the later build metadata, compared like
// pre-releases, any of them before none; of those that have the same as well,
// the last in the order of bytes, so v1.0.0 and not 1.0.0.
//
//	tag, semver, nothing  1.2.3@sha256:…
//	digest                sha256:…
//
// The digest is that of what the tag names, be it a manifest or an index. What
// is verified and what is fetched is what that digest says, whatever happens to
// the tag meanwhile.
//
// # Requests
//
// A tag that has not moved costs one HEAD request, a range the list of tags (one
// request a page) and one HEAD, a pinned digest that was resolved once nothing.
// What is new costs the manifest, an index those that it leads to, and the layer.
// The registry's word for a digest is not taken: manifests and blobs are checked.
// What registries that want tokens, or that are busy, cost more is no part of
// that. spec.timeout bounds each step by itself: log in, list tags, look up the
// tag, fetch the manifest, verify, pull the layer, pack; and before these, read
// the Secrets of spec.verify.
//
// # Indexes and layers
//
// An index leads to the first of its entries that is for linux/amd64, of whatever
// variant. An entry without a platform is taken to be for that, so an index of a
// single artifact needs none. At most 4 indexes may lie within one another. The
// media types are those of OCI and of docker schema 2.
//
// Of the manifest the first layer counts, or the first of the media type that
// layerSelector has. With operation extract, the default, it is an archive: tar,
// as it is or compressed with gzip or zstd, whatever its media type says. Its
// files without those that ignore rules leave out become the artifact. Package
// artifact tells what is refused and what is left out: links above all. The one
// layer of an image is taken for itself: files that it has in common with others
// are not there, and whiteouts (.wh. files) are files. With copy the layer is the
// artifact, as it is.
//
// The layer is received once. A copy goes straight into the store, whose own sum
// proves it where both use sha256; an archive is spooled without its compression
// in [source.Env].Limits.Temp. Memory does not depend on the size of the layer,
// but on the number of its entries, about 100 bytes and the name for each, and
// on the window of zstd, 8 MiB with most encoders and 128 MiB at most.
//
// The annotations of the manifest become the metadata of the artifact: up to
// 64 KiB together, those of the OCI first. A note tells of others.
//
// # Verification
//
// With spec.verify nothing is pulled before the signatures of the digest hold.
// What they are verified with is given to [New] by the provider that the spec
// names: see the packages oci/cosign and oci/notation. Other keys, identities or
// roots verify again. A policy that lets pass what does not hold leaves the
// condition SourceVerified Unknown.
//
// # Stand-ins
//
// A directory that [source.Env].Local gives for spec.url is a repository if it is
// an image layout, with its signatures and its digests, and else the content
// itself: see [source.Dir]. That has no signatures, and no layer to copy.
//
// # Limits
//
// A manifest has at most 4 MiB and 10,000 entries, a list 100,000 tags; a run
// takes tokens of at most 1 MiB together. [source.Env].Limits bounds the layer and
// what is in it: Bytes of each (default 16 GiB), FileBytes (as Bytes), Entries
// (1,000,000), NameBytes (4096) and Ratio (1000 bytes for each compressed byte).
// A failure names the limit.
package oci
