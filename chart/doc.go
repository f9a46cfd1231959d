// Package chart is the origin of PkgRepository and PkgChart objects: indexes of
// charts, and charts from repositories, registries, Git and buckets
// (specification, "PkgRepository", "PkgChart"; reference A12 to A14).
package chart
