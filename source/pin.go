package source

// A Pin is the state of an origin in a lock: enough to fetch the same content again without asking
// for the current state.
//
// An origin whose [Env] has a Pin resolves to the revision of the pin. A GitRepository requests the
// commit by its id, an OCIRepository the manifest by its digest, and a PkgChart of a PkgRepository
// the archive by its URL or the manifest by its digest, without reading an index. A Bucket is
// listed. The caller must check that the revision and the content match the pin. Signatures are
// verified as without a pin.
type Pin struct {
	Revision     string     `yaml:"revision,omitempty"`     // as in artifact.revision
	Tag          string     `yaml:"tag,omitempty"`          // GitRepository: id of the tag object that refers to the commit
	URL          string     `yaml:"url,omitempty"`          // ExternalArtifact: of its artifact
	Chart        *ChartPin  `yaml:"chart,omitempty"`        // PkgChart of a PkgRepository
	Dependencies []ChartPin `yaml:"dependencies,omitempty"` // of a PkgChart: those from repositories

	// Prove makes a GitRepository prove that spec.ref leads to the commit; other kinds ignore it.
	Prove bool `yaml:"-"`
}

// A ChartPin is one version of a chart in a repository. For a dependency, Name, Range and
// Repository are as written in its chart.
type ChartPin struct {
	Name       string `yaml:"name,omitempty"`
	Range      string `yaml:"range,omitempty"`
	Repository string `yaml:"repository,omitempty"`
	Version    string `yaml:"version"`
	URL        string `yaml:"url"`    // of the archive, without user information; oci://HOST/PATH:TAG in a registry
	Digest     string `yaml:"digest"` // of the archive; of the manifest in a registry
}

// A PinError reports that locked content cannot be fetched: its pin is missing in the lock, is gone
// from the origin, or leads to different content.
type PinError struct {
	Problem string // missing, stale, gone, different, or absent if it is not available offline
	Err     error
}

func (e *PinError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *PinError) Unwrap() error { return e.Err }
