// Package chart is the origin of PkgRepository and PkgChart objects: indexes of
// charts, and charts from repositories, registries, Git and buckets
// (specification, "PkgRepository", "PkgChart"; reference A4, A12 to A14).
//
// [NewRepository] returns the origin of a PkgRepository, [New] that of a
// PkgChart. A chart is made of the artifacts of other sources, which
// [source.Env].Sources gives: a program that reconciles both keeps to [source.Order].
//
// # Repositories
//
// The artifact of a PkgRepository is its index as the server gives it, and the
// revision the SHA-256 of that. An index that says the same as the published one,
// in another order or with another time in generated, makes no new artifact:
// package index tells what counts. A repository of type oci has no artifact.
//
// # Selection
//
// In a PkgRepository spec.chart is a name: lower-case letters, digits and
// dashes, with single slashes and dots between them. spec.version is a version
// as the index spells it, or a range; without one it is the highest that is no
// pre-release. Of versions that differ in build metadata alone the one that was
// created last counts, and in a registry, where nothing tells, the later build.
// A tag has _ for +. What an index lacks stalls the chart until the index
// changes; a registry is asked again.
//
// In a GitRepository, a Bucket or an OCIRepository spec.chart is the path of a
// directory or of an archive (.tgz); a leading slash is the root. spec.version
// does not count. An OCIRepository that copies the layer of a chart has that chart
// at its name, and its archive is the artifact.
//
// # Versions
//
// The revision of the artifact is the version of the chart, and its build
// metadata are replaced where the archive is not the chart alone:
//
//	source          valuesFiles  reconcileStrategy  revision
//	PkgRepository   no           any                1.2.3, as the index or the tag has it
//	PkgRepository   yes          any                1.2.3+GENERATION
//	other           no           ChartVersion       1.2.3
//	other           no           Revision           1.2.3+HASH
//	other           yes          ChartVersion       1.2.3+GENERATION
//	other           yes          Revision           1.2.3+HASH.GENERATION
//
// HASH is the first 12 digits of the hash in the revision of the source,
// GENERATION that of the PkgChart. The file is NAME-VERSION.tgz.
//
// With ChartVersion a source that moved makes no new artifact while the version in
// Chart.yaml stays, and the result of the run says so. The same version is made
// again when it is another chart: when its digest in the repository changed
// ([source.Revision].Renew says from what to what), when it comes from another
// source or path, when a values file of another source changed, and with Revision
// when the source has other content under the same revision. Without the state of
// the last run ([source.State]) it is made again when the spec changed, or the
// digest in an index is not that of the archive that was stored as it came.
//
// # The archive
//
// An archive that nothing changes is stored as it came. A directory is packed,
// and so is an archive that gets values or another version: Chart.yaml keeps its
// text but for the version, and the same files make the same bytes, on any
// machine and at any time. Package artifact has the format. .helmignore applies to
// directories. Links are refused in archives; the artifacts of other sources hold none.
//
// # Values
//
// The files of spec.valuesFiles are merged in order, maps deeply; of all else the
// later wins, and null stays null. The result takes the place of values.yaml, which
// the chart must have, and which counts only if the list names it. A path is looked
// up in the chart if that is in a PkgRepository, and else from the root of the
// source; it has no leading slash. values.yaml alone is what the chart has: nothing is merged or stamped,
// whatever the source.
//
// Headgate's extension: source:NAME/PATH is a file of the GitRepository NAME in
// the same namespace, source:KIND/NAME/PATH one of a GitRepository, Bucket,
// OCIRepository or ExternalArtifact. See [source.PkgChart.Values].
//
// A file that is missing stalls the chart, unless spec.ignoreMissingValuesFiles is
// set: then status.observedValuesFiles has those that were used.
//
// # Dependencies
//
// A directory gets the charts that Chart.yaml or requirements.yaml names and
// charts/ lacks, in the versions of the lock file if there is one: directories
// and archives of the same source (file://), charts of repositories and
// registries. Credentials are those of the PkgRepository of the namespace with the
// same URL; without one the request is anonymous. Archives are taken as they are.
// What a range selects is chosen, and verified, when the chart is made: a version
// that is published later, or again, makes no new artifact by itself.
//
// # Verification
//
// spec.verify of a PkgChart asks for a signature of what is in the registry, with
// a technology that is given to [New]: see the packages oci/cosign and oci/notation.
// No blob is asked for before the signature of its digest holds, and what is
// fetched is what that digest says. Headgate's extension: spec.verify.secretRef of
// a PkgRepository over HTTP names a keyring, and then each chart needs a provenance
// file (.prov) beside it that one of the keys signed; its charts are verified
// although their own spec asks for nothing. The file is a text of at most 1 MiB, as
// helm package --sign makes it: Chart.yaml with the name and version of the chart, and
// under NAME-VERSION.tgz the digest of its archive. Which keys and signatures count is
// what it is for commits. Nothing is stored before. Other keys verify
// again. What was refused sets SourceVerified=False and BuildFailed, with the
// reason ChartVerificationError.
//
// The digest in an index is compared with each archive that is fetched, signed or
// not, and so are name and version of the chart with those asked for.
//
// # Requests
//
// An unchanged index costs one conditional request; a chart of an unchanged index
// none, and the index is not read; a chart of another source is not read before the
// digest of the artifact changes. In a registry a full version costs one request,
// a range the list of tags as well. spec.timeout of the source bounds each request
// and each reading of an artifact by itself; a PkgChart has none of its own.
//
// # Where an index may lead
//
// The URLs of an entry are tried in their order until one gives what the index
// promises. They are relative to the repository, or http, https or oci URLs.
//
//   - User name and password are shown to the origin of the repository (scheme, host
//     and port), and with spec.passCredentials to that of the URL of a chart, unless
//     that gives up TLS; never to the target of a redirect. A client certificate is
//     shown to the repository alone. A CA counts for all of them, besides the system's.
//   - The query in spec.url is sent to the repository's own origin.
//   - For an oci URL the credentials are those of the PkgRepository of the
//     namespace whose URL is the longest beginning of it, else those of
//     [source.Env].Keychain, else none.
//   - No server is asked that is in a narrower network than the repository: public,
//     private, or this machine and link.
//   - A chart that comes without TLS from an index that came with it needs a digest.
//
// # Publishing
//
// [Publication] says how a chart is published so that helm pulls it; package oci
// publishes it.
//
// # Stand-ins
//
// A directory that [source.Env].Local gives for spec.url of a PkgRepository has
// index.yaml and the archives where the index says they are; for one of type oci,
// an image layout for each chart at its name.
//
// # Limits
//
// [source.Env].Limits bounds an index (default 256 MiB), the artifact of another
// source (16 GiB, 4,000,000 entries), and a chart: 100 MiB unpacked, 5 MiB a file,
// 10,000 entries, what is packed included. A values file has at most 1 MiB, those of
// a chart 16 MiB together. Of an entry of an index 20 URLs are tried. A chart may get
// 200 charts, and directories may depend on each other 20 deep. A failure names the
// limit.
package chart
