package gcp

import (
	"testing"

	"github.com/headgate-io/headgate/source/login/internal/logintest"
)

func TestEndpointOf(t *testing.T) {
	logintest.CheckEndpoints(t, endpointOf, map[string]endpoint{
		"oci://gcr.io/project/app":                                  {googleCloud, scope, false},
		"oci://eu.gcr.io/project/app":                               {googleCloud, scope, false},
		"oci://EU.GCR.io:443/project/app":                           {googleCloud, scope, false},
		"oci://europe-west1-docker.pkg.dev/project/repo/app":        {googleCloud, scope, false},
		"oci://us-docker.pkg.dev/project/repo/app":                  {googleCloud, scope, false},
		"oci://docker.s3nsregistry.fr/project/repo/app":             {s3nsCloud, scope, false},
		"oci://u-france-east1-docker.s3nsregistry.fr/project/r/app": {s3nsCloud, scope, false},
		"gs://storage.googleapis.com/bucket":                        {googleCloud, bucketScope, true},
		"gs://Storage.GoogleAPIs.com:443/bucket":                    {googleCloud, bucketScope, true},
		"gs://storage.me-central2.rep.googleapis.com/bucket":        {googleCloud, bucketScope, true},
		"gs://storage-own.p.googleapis.com/bucket":                  {googleCloud, bucketScope, true},
		"gs://storage.s3nsapis.fr/bucket":                           {s3nsCloud, bucketScope, true},
	})
}

// foreignURLs are hosts that look like those of Google Cloud.
const foreignURLs = `
oci://evil.com/gcr.io oci://xgcr.io/app oci://gcr.io.evil.com/app oci://eu.gcr.io.evil.com/app oci://a.b.gcr.io/app oci://-.gcr.io/app oci://.gcr.io/app
oci://gcr.io:8443/app oci://gcr.io:/app oci://gcr.io./app oci://gcr.io@evil.com/app oci://oauth2accesstoken@gcr.io/app oci://gcrxio/app oci://foo-docker.pkg.dev.evil/app
oci://foo-docker.pkg.dev.evil.com/app oci://foo-docker.evil.pkg.dev/app oci://evil.com-docker.pkg.dev/app oci://evil-dockerxpkgxdev/app oci://-docker.pkg.dev/app
oci://docker.pkg.dev/app oci://us-npm.pkg.dev/app oci://us-docker.pkg.dev:80/app oci://us-docKer.pkg.dev/app oci://s3nsregistry.fr/app oci://xdocker.s3nsregistry.fr/app
oci://evil.docker.s3nsregistry.fr/app oci://docker.s3nsregistry.fr.evil.com/app https://gcr.io/app gs://gcr.io/app gs://us-docker.pkg.dev/app
oci://storage.googleapis.com/bucket https://storage.googleapis.com/bucket gs://googleapis.com/bucket gs://xstorage.googleapis.com/bucket
gs://storage.googleapis.com.evil.com/bucket gs://storage.googleapis.com:80/bucket gs://user@storage.googleapis.com/bucket gs://storagexgoogleapis.com/bucket
gs://bucket.storage.googleapis.com/ gs://storage.a.b.rep.googleapis.com/bucket gs://storage.rep.googleapis.com/bucket gs://storage-.p.googleapis.com/bucket
gs://evil-storage-own.p.googleapis.com/bucket gs://storage.evil.s3nsapis.fr/bucket http://us-docker.pkg.dev/app oci:gcr.io/app gcr.io/app`

func TestForeignURLs(t *testing.T) { logintest.CheckForeignURLs(t, endpointOf, foreignURLs) }
