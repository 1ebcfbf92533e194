# nix run . -- lock /demo -- echo held
{
  description = "Baton: distributed locks, queues and leader election";

  inputs.nixpkgs.url = "nixpkgs/nixos-unstable";

  outputs = { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" ];
      manifest = builtins.fromTOML (builtins.readFile ./Cargo.toml);
      package = pkgs: pkgs.rustPlatform.buildRustPackage {
        pname = "baton";
        version = manifest.workspace.package.version;
        src = self;
        cargoLock.lockFile = ./Cargo.lock;
        cargoBuildFlags = [ "--package" "baton-locks-cli" ];
        buildType = "dist";
        # The workspace's tests start servers; they run in its own CI.
        doCheck = false;
        nativeBuildInputs = [ pkgs.installShellFiles ];
        postInstall = ''
          $out/bin/baton man man >/dev/null
          installManPage man/*.1
          for shell in bash zsh fish; do
            installShellCompletion --cmd baton --$shell <($out/bin/baton completions $shell)
          done
        '';
        meta = {
          description = "Distributed locks, queues and leader election";
          license = with pkgs.lib.licenses; [ mit asl20 ];
          mainProgram = "baton";
          platforms = systems;
        };
      };
    in {
      packages = nixpkgs.lib.genAttrs systems
        (system: { default = package nixpkgs.legacyPackages.${system}; });
    };
}
