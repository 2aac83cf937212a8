// The command `discovery` of istiod, as one program: Istio publishes no module version of it, only images.
package main

import (
	"os"

	"istio.io/istio/pilot/cmd/pilot-discovery/app"
	"istio.io/istio/pkg/log"
)

func main() {
	log.EnableKlogWithCobra()
	if err := app.NewRootCommand().Execute(); err != nil {
		log.Error(err)
		os.Exit(1)
	}
}
