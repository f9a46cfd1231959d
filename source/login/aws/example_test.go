package aws_test

import (
	"context"
	"fmt"
	"log"

	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/aws"
)

// A registry of AWS is asked with the identity of the program.
func Example() {
	app := &source.OCIRepository{Spec: source.OCIRepositorySpec{Provider: "aws", URL: "oci://123456789012.dkr.ecr.eu-central-1.amazonaws.com/app"}}
	revision, _, err := oci.New(app, source.Env{Login: aws.New(nil, nil).Login}, nil).Resolve(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(revision.ID)
}
