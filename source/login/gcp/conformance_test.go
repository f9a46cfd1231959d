package gcp_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/internal/logintest"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// artifactRepository is one of Artifact Registry that a service account reads.
type artifactRepository struct {
	*world
	login  source.LoginFunc
	defect sourcetest.Defect
}

func newArtifactRepository(t *testing.T) *artifactRepository {
	w := newWorld(t, file(serviceAccount().write(t))...)
	return &artifactRepository{world: w, login: w.provider().Login}
}

func (s *artifactRepository) Publish(tree fstest.MapFS) error {
	s.registry.Push("project/repo/app", "latest", testenv.Manifest{Layers: []testenv.Blob{testenv.TarGzip(s.T, tree)}})
	return nil
}

var defects = map[sourcetest.Defect]*testenv.Defect{
	sourcetest.Gone:         {Status: http.StatusNotFound},
	sourcetest.Denied:       {Status: http.StatusForbidden},
	sourcetest.Leaking:      {Do: testenv.Leak, Status: http.StatusBadRequest},
	sourcetest.StallResolve: {Do: testenv.Stall, After: -1},
	sourcetest.StallFetch:   {Phase: testenv.GetBlob, Do: testenv.Stall, After: 100},
}

func (s *artifactRepository) Break(d sourcetest.Defect) <-chan struct{} {
	s.defect = d
	s.login = s.provider().Login // keeps nothing yet
	s.SetAnswer(map[sourcetest.Defect]http.HandlerFunc{
		"refused": logintest.Answers(http.StatusBadRequest, `{"error":"invalid_grant"}`),
		"unavailable": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintf(w, `{"message":"you sent %s"}`, r.PostFormValue("assertion"))
		},
	}[d])
	return s.registry.Break(defects[d])
}

func (s *artifactRepository) Object() source.Object {
	o := logintest.Artifact("gcp", artifact)
	o.Metadata.Generation = 0
	o.Spec.Interval = source.Duration(time.Hour)
	switch s.defect {
	case sourcetest.NoSecret:
		o.Spec.ProxySecretRef.Name = "absent"
	case sourcetest.Invalid:
		o.Spec.ServiceAccountName = "robot"
	}
	return o
}

func (s *artifactRepository) Origin(obj source.Object) source.Origin {
	return oci.New(obj.(*source.OCIRepository), source.Env{Secrets: s.World.Secrets, Login: s.login}, nil)
}

func (s *artifactRepository) Traffic() sourcetest.Traffic {
	return sourcetest.Traffic{Requests: s.registry.Count(), Content: int64(s.registry.Count(testenv.GetBlob))}
}

func (s *artifactRepository) Secrets() []string {
	all := []string{"PRIVATE KEY", "eyJ"}
	for n := range s.Valid() {
		all = append(all, token(n+1))
	}
	return all
}

func TestConformance(t *testing.T) {
	t.Parallel()
	fails := func(d sourcetest.Defect, reason, message string) sourcetest.Failure {
		return sourcetest.Failure{Defect: d, Outcome: source.Failed, Condition: "FetchFailed", Reason: reason, Message: message}
	}
	sourcetest.Run(t, sourcetest.Kind{
		Name: "OCIRepository of Google Cloud",
		Open: func(sourcetest.TB) sourcetest.Upstream { return newArtifactRepository(t) },
		Drift: func(obj source.Object) {
			ignore := "/nothing-of-that-name\n"
			obj.(*source.OCIRepository).Spec.Ignore = &ignore
		},
		Failures: []sourcetest.Failure{
			fails(sourcetest.Gone, "OCIArtifactPullFailed", "404"),
			fails(sourcetest.Denied, "AuthenticationFailed", "403"),
			fails(sourcetest.NoSecret, "AuthenticationFailed", "default/absent"),
			fails(sourcetest.Leaking, "OCIArtifactPullFailed", "400"),
			fails("refused", "InvalidProviderConfiguration", "status 400 (invalid_grant)"),
			fails("unavailable", "AuthenticationFailed", "status 503"),
			{Defect: sourcetest.Invalid, Outcome: source.Stalled, Condition: "FetchFailed", Reason: "InvalidProviderConfiguration", Message: "spec.serviceAccountName"},
		},
		Stalls:       []sourcetest.Defect{sourcetest.StallResolve, sourcetest.StallFetch},
		Hostile:      []string{"../up"},
		IgnoreFile:   ".sourceignore",
		IgnoreNested: true,
	})
}
