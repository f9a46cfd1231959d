package source

import "time"

const (
	defaultTimeout     = Duration(60 * time.Second)
	repositoryInterval = Duration(time.Minute)
)

// Default fills in what an API server would: the namespace, timeout 60s,
// provider generic, verify.mode HEAD, verify.provider cosign, the chart's
// version "*" and strategy ChartVersion, the repository's type default; and
// the interval of a PkgRepository, 1m. An object without apiVersion gets v1 of
// [Group]. The kinds of the reference become the specification's. An object that
// has its defaults is not written to.
func Default(obj Object) {
	head := obj.Head()
	if head.Metadata.Namespace == "" {
		head.Metadata.Namespace = DefaultNamespace
	}
	a, ok := obj.(admitted)
	if !ok {
		return
	}
	if head.Kind == "" {
		head.Kind = a.kind()
	}
	if head.APIVersion == "" {
		head.APIVersion = Group + "/" + V1
	}
	canonical(&head.Kind)
	a.defaults()
}

// or sets an empty field.
func or[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// canonical replaces a spelling of the reference. It writes nothing if there is
// nothing to replace: others may read the object.
func canonical(kind *string) {
	if k := spelledKind(*kind); k != nil && k.name != *kind {
		*kind = k.name
	}
}

func (g *GitRepository) kind() string { return "GitRepository" }

func (g *GitRepository) defaults() {
	or(&g.Spec.Provider, "generic")
	or(&g.Spec.Timeout, defaultTimeout)
	if g.Spec.Verify != nil {
		or(&g.Spec.Verify.Mode, VerifyHEAD)
	}
	for i := range g.Spec.Include {
		canonical(&g.Spec.Include[i].Repository.Kind)
	}
}

func (b *Bucket) kind() string { return "Bucket" }

func (b *Bucket) defaults() {
	or(&b.Spec.Provider, "generic")
	or(&b.Spec.Timeout, defaultTimeout)
}

func (o *OCIRepository) kind() string { return "OCIRepository" }

func (o *OCIRepository) defaults() {
	or(&o.Spec.Provider, "generic")
	or(&o.Spec.Timeout, defaultTimeout)
	o.Spec.Verify.defaults()
}

func (v *OCIRepositoryVerification) defaults() {
	if v != nil {
		or(&v.Provider, "cosign")
	}
}

func (p *PkgRepository) kind() string { return "PkgRepository" }

func (p *PkgRepository) defaults() {
	or(&p.Spec.Provider, "generic")
	or(&p.Spec.Timeout, defaultTimeout)
	or(&p.Spec.Interval, repositoryInterval)
	or(&p.Spec.Type, RepositoryIndex)
	if a := p.Spec.AccessFrom; a != nil && a.NamespaceSelectors == nil {
		a.NamespaceSelectors = []NamespaceSelector{}
	}
}

func (c *PkgChart) kind() string { return "PkgChart" }

func (c *PkgChart) defaults() {
	or(&c.Spec.Version, "*")
	or(&c.Spec.ReconcileStrategy, StrategyChartVersion)
	canonical(&c.Spec.SourceRef.Kind)
	c.Spec.Verify.defaults()
}

func (e *ExternalArtifact) kind() string { return "ExternalArtifact" }

func (e *ExternalArtifact) defaults() {}
