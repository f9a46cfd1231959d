// Package oci is the origin of OCIRepository objects: artifacts and images in
// registries that speak the OCI distribution specification 1.1 (specification,
// "OCIRepository"; reference A11).
//
// # Selection
//
// spec.ref.digest comes before semver (with semverFilter, a regular expression
// that tag names must match first), before tag; the default is the tag latest.
// The revision is TAG@DIGEST, or DIGEST alone when the spec pins one. The digest
// is that of the manifest or index the tag names; an index leads to the
// manifest of its first entry for linux/amd64. What is verified and what is
// fetched is what that digest says.
package oci
