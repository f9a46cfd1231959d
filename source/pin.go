package source

// A Pin is what a lock has of the state of an origin: enough to fetch the same
// content again without asking which state is the current one.
//
// An origin whose [Env] has a Pin resolves to the revision of the pin. A
// GitRepository asks for the commit by its id, an OCIRepository for the manifest by
// its digest, a PkgChart of a PkgRepository for the archive by its URL, or for the
// manifest by its digest; no index is read. A Bucket is listed. That the revision,
// and the content, are those of the pin is for the caller to compare. Signatures
// are verified as ever.
type Pin struct {
	Revision     string     `yaml:"revision,omitempty"`     // as in artifact.revision
	Tag          string     `yaml:"tag,omitempty"`          // GitRepository: id of the tag object that led to the commit
	URL          string     `yaml:"url,omitempty"`          // ExternalArtifact: of its artifact
	Chart        *ChartPin  `yaml:"chart,omitempty"`        // PkgChart of a PkgRepository
	Dependencies []ChartPin `yaml:"dependencies,omitempty"` // of a PkgChart, that come from repositories

	// Prove has a GitRepository prove that spec.ref leads to the commit; other kinds
	// ignore it.
	Prove bool `yaml:"-"`
}

// A ChartPin is one version of a chart in a repository. Name, Range and Repository are
// those of a dependency as its chart writes them.
type ChartPin struct {
	Name       string `yaml:"name,omitempty"`
	Range      string `yaml:"range,omitempty"`
	Repository string `yaml:"repository,omitempty"`
	Version    string `yaml:"version"`
	URL        string `yaml:"url"`    // of the archive, without user information; oci://HOST/PATH:TAG in a registry
	Digest     string `yaml:"digest"` // of the archive; of the manifest in a registry
}

// A PinError says that what is locked cannot be had: its pin is missing in the
// lock, gone from the origin, or leads to something different.
type PinError struct {
	Problem string // missing, stale, gone, different, or absent from what is at hand offline
	Err     error
}

func (e *PinError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *PinError) Unwrap() error { return e.Err }
