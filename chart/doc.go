// Package chart implements the origins of PkgRepository and PkgChart objects: indexes of
// charts, and charts from repositories, registries, Git and buckets (specification,
// "PkgRepository", "PkgChart"; reference A4, A12 to A14).
//
// [NewRepository] returns the origin of a PkgRepository, [New] that of a PkgChart. A chart
// is built from the artifacts of other sources, which [source.Env].Sources provides. A
// program that reconciles both must follow [source.Order].
//
// # Repositories
//
// The artifact of a PkgRepository is its index as the server sends it, and the revision is
// the SHA-256 of the index. An index that differs from the published one only in its order
// or in the time in generated makes no new artifact: package index defines the comparison.
// A repository of type oci has no artifact.
//
// # Selection
//
// In a PkgRepository, spec.chart is a name: lower-case letters, digits and dashes, with
// single slashes and dots between them. spec.version is a version as the index spells it,
// or a range; if it is empty, the highest version that is not a pre-release is selected.
// Among versions that differ only in build metadata, the one created last is selected; in a
// registry, which does not record the time, the later build is selected. A tag has _ in
// place of +. If an index lacks the version, the chart stalls until the index changes; a
// registry is asked again.
//
// In a GitRepository, a Bucket or an OCIRepository, spec.chart is the path of a directory
// or of an archive (.tgz); a leading slash is the root. spec.version is ignored. In an
// OCIRepository that copies the layer of a chart, the path is the name of the chart, and
// the archive in the layer becomes the artifact.
//
// # Versions
//
// The revision of the artifact is the version of the chart. Its build metadata are replaced
// if the archive does not depend on the chart alone:
//
//	source          valuesFiles  reconcileStrategy  revision
//	PkgRepository   no           any                1.2.3, as the index or the tag has it
//	PkgRepository   yes          any                1.2.3+GENERATION
//	other           no           ChartVersion       1.2.3
//	other           no           Revision           1.2.3+HASH
//	other           yes          ChartVersion       1.2.3+GENERATION
//	other           yes          Revision           1.2.3+HASH.GENERATION
//
// HASH is the first 12 digits of the hash in the revision of the source, GENERATION is the
// generation of the PkgChart. The file is NAME-VERSION.tgz.
//
// With ChartVersion, a new revision of the source makes no new artifact while the version
// in Chart.yaml stays the same, and the result of the run says so. The same version is
// built again if it is a different chart: if its digest in the repository changed
// ([source.Revision].Renew names both digests), if it comes from another source or path, if
// a values file of another source changed, and with Revision if the source has other
// content under the same revision. Without the state of the last run ([source.State]), it
// is built again if the spec changed, or if the digest in an index is not that of an
// archive that was stored unchanged.
//
// # The archive
//
// An archive that needs no change is stored unchanged. A directory is packed, and so is an
// archive that gets values or another version: Chart.yaml keeps its text except for the
// version, and the same files give the same bytes, on any machine and at any time. Package
// artifact defines the format. .helmignore applies to directories. Archives with links are
// rejected; the artifacts of other sources contain no links.
//
// # Values
//
// The files of spec.valuesFiles are merged in order. Maps are merged deeply; for all other
// values the later file wins, and null stays null. The result replaces values.yaml, which
// the chart must have, and which is merged only if the list names it. Paths are relative to
// the chart if the chart is in a PkgRepository, and otherwise to the root of the source;
// they have no leading slash. If the list is values.yaml alone, nothing is merged or
// stamped, whatever the source.
//
// Headgate's extension: source:NAME/PATH is a file of the GitRepository NAME in the same
// namespace, source:KIND/NAME/PATH one of a GitRepository, Bucket, OCIRepository or
// ExternalArtifact. See [source.PkgChart.Values].
//
// A missing file stalls the chart, unless spec.ignoreMissingValuesFiles is set: then
// status.observedValuesFiles lists the files that were used.
//
// # Dependencies
//
// A directory gets the charts that Chart.yaml or requirements.yaml names and charts/ lacks,
// in the versions of the lock file if there is one: directories and archives of the same
// source (file://), and charts from repositories and registries. Credentials are those of
// the PkgRepository of the namespace with the same URL; without one the request is
// anonymous. Archives are added unchanged. A range is resolved, and the selected version
// verified, when the chart is built: a version that is published later, or again, makes no
// new artifact by itself.
//
// # Verification
//
// spec.verify of a PkgChart requires a signature in the registry, made with a technology
// that is given to [New]: see the packages oci/cosign and oci/notation. No blob is
// requested before the signature of its digest is verified, and the fetched content has
// that digest.
//
// Headgate's extension: spec.verify.secretRef of a PkgRepository over HTTP names a keyring.
// Each chart then needs a provenance file (.prov) beside it that one of the keys signed; a
// chart is verified even if its own spec does not ask for it. The file is a text of at most
// 1 MiB, as helm package --sign makes it: Chart.yaml with the name and version of the
// chart, and the digest of its archive under NAME-VERSION.tgz. Keys and signatures are
// accepted by the same rules as for commits. Nothing is stored before verification. If the
// keys change, the chart is verified again. A rejected chart sets SourceVerified=False and
// BuildFailed, with the reason ChartVerificationError.
//
// Each fetched archive, signed or not, is compared with the digest in the index, and the
// name and version of the chart with the requested ones.
//
// # Requests
//
// An unchanged index costs one conditional request. A chart of an unchanged index costs no
// request, and the index is not read; a chart of another source is not read before the
// digest of the artifact changes. In a registry a full version costs one request; a range
// also costs the list of tags. spec.timeout of the source bounds each request and each
// reading of an artifact separately; a PkgChart has no timeout of its own.
//
// # Where an index may lead
//
// The URLs of an entry are tried in order until one returns what the index promises. They
// are relative to the repository, or http, https or oci URLs.
//
//   - User name and password are sent to the origin of the repository (scheme, host and
//     port), and with spec.passCredentials to the origin of a chart's URL, unless that
//     leads from https to http; never to the target of a redirect. A client certificate is sent to the
//     repository only. A CA is trusted for all these servers, in addition to the system's.
//   - The query in spec.url is sent to the repository's own origin.
//   - For an oci URL the credentials are those of the PkgRepository of the namespace whose
//     URL is its longest prefix, else those of [source.Env].Keychain, else none.
//   - No request is sent to a server in a narrower network than that of the repository:
//     public, private, or this machine and link.
//   - A chart that is fetched without TLS needs a digest if its index was fetched with TLS.
//
// # Publishing
//
// [Publication] describes how a chart is published so that helm can pull it; package oci
// publishes it.
//
// # Local directories
//
// A directory that [source.Env].Local gives for spec.url of a PkgRepository replaces the
// server. It holds index.yaml and the archives at the paths that the index names; for a
// repository of type oci, it holds one image layout for each chart, at the name of the
// chart.
//
// # Limits
//
// [source.Env].Limits bounds an index (default 256 MiB), the artifact of another source (16
// GiB, 4,000,000 entries), and a chart that is read or packed: 100 MiB unpacked, 5 MiB a
// file, 10,000 entries. A values file has at most 1 MiB, all values files of a chart 16 MiB
// together. At most 20 URLs of an index entry are tried. At most 200 charts are added to a
// chart, and directories may depend on each other 20 deep. Errors name the limit.
package chart
