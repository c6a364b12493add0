# A formula for Homebrew: brew install --HEAD deploy/homebrew/swiftkv.rb
# It was never run; docs/guides/mac.md says what is known.
class Swiftkv < Formula
  desc "Runs language models and makes long prompts cheap"
  homepage "https://arxiv.org/abs/2410.03960"
  license "Apache-2.0"
  head "file://#{File.expand_path("../..", __dir__)}", using: :git, branch: "main"

  depends_on "cmake" => :build
  depends_on "pkgconf" => :build
  depends_on "curl"
  depends_on "jansson"
  depends_on "libyaml"
  depends_on "nettle"
  depends_on "openssl@3"
  depends_on "pcre2"
  depends_on "utf8proc"

  def install
    system "cmake", "-S", ".", "-B", "build", "-DSKV_TESTS=OFF", "-DSKV_MPI=OFF", *std_cmake_args
    system "cmake", "--build", "build"
    system "cmake", "--install", "build"
  end

  test do
    assert_match "processor", shell_output("#{bin}/swiftkv doctor")
  end
end
